package executor

// Recorded is what the files in a run directory tell of a task. It looks at no
// process.
func Recorded(dir string) (Status, error) {
	status, _, err := runDir(dir).recorded()
	return status, err
}
