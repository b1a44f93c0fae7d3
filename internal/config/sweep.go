package config

import "time"

// SweepEvery is the interval as a duration; zero if none was given.
func (s *Server) SweepEvery() time.Duration {
	d, _ := time.ParseDuration(s.SweepInterval) // it was checked
	return d
}
