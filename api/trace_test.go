package api_test

import (
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
)

func TestTraceContexts(t *testing.T) {
	t.Parallel()
	const id, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for name, tc := range map[string]struct{ header, want string }{
		"Sampled":          {"00-" + id + "-" + span + "-01", "00-" + id + "-" + span + "-01"},
		"NotSampled":       {"00-" + id + "-" + span + "-00", "00-" + id + "-" + span + "-00"},
		"RandomID":         {"00-" + id + "-" + span + "-03", "00-" + id + "-" + span + "-01"},
		"LaterVersion":     {"42-" + id + "-" + span + "-01-what-ever", "00-" + id + "-" + span + "-01"},
		"None":             {"", ""},
		"NoID":             {"00-" + strings.Repeat("0", 32) + "-" + span + "-01", ""},
		"NoSpan":           {"00-" + id + "-" + strings.Repeat("0", 16) + "-01", ""},
		"UpperCase":        {"00-" + strings.ToUpper(id) + "-" + span + "-01", ""},
		"ShortID":          {"00-" + id[1:] + "-" + span + "-01", ""},
		"ForbiddenVersion": {"ff-" + id + "-" + span + "-01", ""},
		"MoreThanVersion0": {"00-" + id + "-" + span + "-01-x", ""},
		"TrailingDash":     {"00-" + id + "-" + span + "-01-", ""},
		"NoFlags":          {"00-" + id + "-" + span, ""},
		"Signed":           {"00-" + id + "-" + span + "-+1", ""},
		"Long":             {strings.Repeat("0", 1<<16), ""},
		"LineBreak":        {"00-" + id + "-" + span + "-01\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := api.ParseTraceContext(tc.header)
			if string(got) != tc.want || !got.Valid() {
				t.Errorf("got %q, valid %t; want %q", got, got.Valid(), tc.want)
			}
			if wrong := api.TraceContext(tc.header); tc.header != tc.want && wrong.Valid() {
				t.Errorf("%q is valid as it is", wrong)
			}
		})
	}
}
