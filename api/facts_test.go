package api_test

import (
	"reflect"
	"testing"

	"github.com/berth-dev/berth/api"
)

// TestFactsEmpty fills each list in turn: one that Empty does not know would
// never be sent.
func TestFactsEmpty(t *testing.T) {
	t.Parallel()
	if !new(api.Facts).Empty() {
		t.Error("no facts are not empty")
	}
	for i := range reflect.TypeFor[api.Facts]().NumField() {
		var facts api.Facts
		field := reflect.ValueOf(&facts).Elem().Field(i)
		switch field.Kind() {
		case reflect.Map:
			field.Set(reflect.MakeMap(field.Type())) // a node that has lost its last driver
		case reflect.Slice:
			field.Set(reflect.MakeSlice(field.Type(), 1, 1))
		case reflect.String:
			field.SetString("x")
		default:
			field.SetUint(1)
		}
		if facts.Empty() {
			t.Errorf("facts with %s are empty", reflect.TypeFor[api.Facts]().Field(i).Name)
		}
	}
}

func TestInstanceServes(t *testing.T) {
	t.Parallel()
	service := []string{api.CapControllerService}
	for _, tc := range []struct {
		status           api.InstanceStatus
		controller, node bool
	}{
		{api.InstanceStatus{Type: api.InstanceMonolith, PluginCapabilities: service}, true, true},
		{api.InstanceStatus{Type: api.InstanceMonolith}, false, true},
		{api.InstanceStatus{Type: api.InstanceController, PluginCapabilities: service}, true, false},
		{api.InstanceStatus{Type: api.InstanceNode, PluginCapabilities: service}, false, true},
	} {
		if c, n := tc.status.ServesController(), tc.status.ServesNode(); c != tc.controller || n != tc.node {
			t.Errorf("%s %v: serves controller %v, node %v; want %v, %v",
				tc.status.Type, tc.status.PluginCapabilities, c, n, tc.controller, tc.node)
		}
	}
	can := api.InstanceStatus{ControllerCapabilities: []string{api.CapCreateDeleteVolume}}
	if !can.Can(api.CapCreateDeleteVolume) || can.Can(api.CapPublishUnpublish) {
		t.Error("Can answers for the wrong capability")
	}
}
