package api_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/api"
)

func TestDurationJSON(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{0, time.Nanosecond, 90 * time.Second, -time.Hour, 1<<63 - 1} {
		b, err := json.Marshal(api.Duration(d))
		if err != nil {
			t.Fatal(err)
		}
		var back api.Duration
		if err := json.Unmarshal(b, &back); err != nil || time.Duration(back) != d {
			t.Errorf("%s became %s and then %s (%v)", d, b, back, err)
		}
	}
}

func TestDurationReads(t *testing.T) {
	t.Parallel()
	const before = api.Duration(7)
	for said, want := range map[string]struct {
		d   api.Duration
		err string
	}{
		`"1m30s"`:                             {d: api.Duration(90 * time.Second)},
		`null`:                                {d: before},
		`30`:                                  {d: before, err: `json: cannot unmarshal 30 into Go value of type api.Duration`},
		`"30"`:                                {d: before, err: `json: cannot unmarshal "30" into Go value of type api.Duration`},
		`[` + strings.Repeat("1,", 30) + `1]`: {d: before, err: `json: cannot unmarshal [` + strings.Repeat("1,", 19) + `1... into Go value of type api.Duration`},
		`""`:                                  {d: before, err: `json: cannot unmarshal "" into Go value of type api.Duration`},
	} {
		d := before
		err := json.Unmarshal([]byte(said), &d)
		if d != want.d || message(err) != want.err {
			t.Errorf("%s: read %s, %q; want %s, %q", said, d, message(err), want.d, want.err)
		}
	}
}
