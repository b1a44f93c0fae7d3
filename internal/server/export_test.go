package server

import (
	"time"

	"github.com/berth-dev/berth/internal/controller"
	"github.com/berth-dev/berth/internal/controller/collector"
	"github.com/berth-dev/berth/internal/server/httpapi"
	"github.com/berth-dev/berth/internal/state"
)

// Explain is what servers explain with.
func Explain() httpapi.Explainer { return explainer{} }

// Plan is what servers plan with.
func Plan(store *state.Store, now time.Time) httpapi.Planner {
	return PlanAt(store, func() time.Time { return now })
}

// PlanAt is Plan for a clock.
func PlanAt(store *state.Store, now func() time.Time) httpapi.Planner { return newPlanner(store, now) }

// Controllers are those that servers run.
func Controllers() []controller.Controller {
	return controllers(Config{Keep: collector.DefaultKeep()})
}
