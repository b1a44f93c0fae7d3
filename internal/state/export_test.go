package state

// Tables lists the tables in the order in which they are saved.
func Tables() []string {
	var names []string
	for _, d := range definitions() {
		names = append(names, d.id().String())
	}
	return names
}
