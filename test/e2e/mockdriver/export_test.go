package main

// Main is main, for the test binary to become the program.
var Main = main
