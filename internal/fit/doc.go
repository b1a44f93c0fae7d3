// Package fit holds the pure rules by which things go together: access modes,
// capabilities, topologies, plugins and the codes that they answer. It is used
// by controllers, which choose, and by commands, which check the same again in
// Apply. It never reads the state, a clock or a random source.
package fit
