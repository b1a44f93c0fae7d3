package csimanager

import (
	"errors"
	"fmt"

	"github.com/berth-dev/berth/internal/agent/csi"
)

// StepError is why a step on the way to a mount, or back, did not succeed.
type StepError struct {
	// Step is the call: NodeStageVolume, or what else was tried.
	Step string
	// Code is a gRPC code's name if a plugin answered.
	Code    string
	Message string
}

func (e *StepError) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("%s: %s", e.Step, e.Message)
	}
	return fmt.Sprintf("%s: %s: %s", e.Step, e.Code, e.Message)
}

// Problem is the error's parts, for who reports it.
func (e *StepError) Problem() (step, code, message string) { return e.Step, e.Code, e.Message }

// called turns the error of a call into a StepError; nil stays nil.
func called(step string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*csi.Error](err); ok {
		return &StepError{Step: step, Code: e.Code, Message: e.Message}
	}
	return &StepError{Step: step, Message: err.Error()}
}
