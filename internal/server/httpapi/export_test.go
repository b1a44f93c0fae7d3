package httpapi

import (
	"maps"
	"slices"
)

// StatusOf is the table from codes to HTTP status.
var StatusOf = statusOf

// Route is a row of the table of routes.
type Route struct {
	Pattern, Name, Doc string
	Path, Query        []string
	Body, Answer       any
	Media, BodyMedia   string
}

// Routes is the table of routes.
func Routes(h *Handler) []Route {
	var all []Route
	for _, rt := range h.routes() {
		all = append(all, Route{
			Pattern: rt.pattern, Name: rt.name, Doc: rt.doc, Path: rt.inPath(), Query: rt.query,
			Body: rt.body, Answer: rt.answer, Media: rt.media, BodyMedia: rt.bodyMedia,
		})
	}
	return all
}

// Parameters are the names of the parameters that are described.
func Parameters() []string { return slices.Sorted(maps.Keys(parameters())) }
