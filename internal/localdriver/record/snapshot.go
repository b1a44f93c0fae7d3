package record

import "time"

// Snapshot is all that the driver knows of a snapshot: a copy of a volume as
// it was at one moment. It has a life of its own: the volume may go.
type Snapshot struct {
	ID string `json:"id"`
	// Name is the CSI name that CreateSnapshot was called with.
	Name  string `json:"name"`
	State State  `json:"state"`
	// Volume is the id of the volume that was copied.
	Volume string `json:"volume"`
	Body
	// Taken is the moment that it shows.
	Taken time.Time `json:"taken"`
}

func (s Snapshot) ident() string { return s.ID }

// check reports what in a record no driver has written.
func (s Snapshot) check() error {
	if err := s.State.check(); err != nil {
		return err
	}
	return s.Body.check()
}

// Clone is a copy that shares nothing with s.
func (s Snapshot) Clone() Snapshot {
	s.Body = s.Body.clone()
	return s
}
