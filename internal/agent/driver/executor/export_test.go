package executor

// Recorded is what the files in a run directory tell of a task. It looks at no
// process.
func Recorded(dir string) (Status, error) {
	status, _, err := runDir(dir).recorded()
	return status, err
}

// Spare is the process that waits for the next task, or 0.
func (t *Tasks) Spare() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.spare == nil {
		return 0
	}
	return t.spare.pid
}

// Leave closes what closes when the agent ends.
func (t *Tasks) Leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.spare.errand.Close()
	t.spare = nil
}
