package probe

// Ask makes one probe.
var Ask = ask
