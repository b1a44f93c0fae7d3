// Package httpapi is the HTTP API: JSON below /v1, with blocking queries. It
// turns requests into commands and rows into answers.
//
// It never decides and never touches the state but through its Log. Invariant:
// what a caller sends is checked whole before anything is proposed, and every
// problem is answered at once; what is read is committed.
package httpapi
