package client

import (
	"context"
	"net/http"
	"strings"

	"github.com/berth-dev/berth/api"
)

// Variables lists the variables of a namespace, or of all, without their values.
func (c *Client) Variables(ctx context.Context, q Query) ([]*api.Variable, uint64, error) {
	return get[[]*api.Variable](ctx, c, q, "vars")
}

// Variable reads a variable with its values. The error of one that is not there,
// not_found, comes with an index too: with it the query blocks until there is one.
func (c *Client) Variable(ctx context.Context, ns api.NamespaceID, path api.VariablePath, q Query) (api.VariableInfo, uint64, error) {
	return get[api.VariableInfo](ctx, c, q, variablePath(ns, path)...)
}

// PutVariable puts items under a path, in the place of those that are there. The
// same again writes nothing. The answer has no values.
func (c *Client) PutVariable(ctx context.Context, ns api.NamespaceID, path api.VariablePath, spec api.VariableSpec, version uint64) (*api.Variable, error) {
	return change[*api.Variable](ctx, c, call{method: http.MethodPut, path: variablePath(ns, path), query: onlyAt(version), body: spec})
}

// DeleteVariable deletes a variable.
func (c *Client) DeleteVariable(ctx context.Context, ns api.NamespaceID, path api.VariablePath, version uint64) error {
	_, err := change[struct{}](ctx, c, call{method: http.MethodDelete, path: variablePath(ns, path), query: onlyAt(version)})
	return err
}

func variablePath(ns api.NamespaceID, path api.VariablePath) []string {
	return append([]string{"var", string(ns)}, strings.Split(string(path), "/")...)
}
