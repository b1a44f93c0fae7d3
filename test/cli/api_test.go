package cli_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

// TestExamplesOfTheAPIAreAnswered: what docs/api.md shows for curl does what it
// says.
func TestExamplesOfTheAPIAreAnswered(t *testing.T) {
	t.Parallel()
	_, server := serve(t, 1, provider("api"))
	c, err := client.New(client.Config{Address: server, Patience: limit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if _, _, err := c.Cluster(t.Context(), client.Query{}); err != nil { // waits for a leader
		t.Fatal(err)
	}
	put := `-X PUT http://127.0.0.1:7400/v1/volume/default/first -d '{"plugin_id":"local","capabilities":[{"access_mode":"single-node-writer","attachment_mode":"file-system"}]}'`
	if status, _, body := curl(t, server, put); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	count := 0
	for line := range strings.Lines(read(t, "docs/api.md")) {
		command, found := strings.CutPrefix(line, "    curl ")
		if !found {
			continue
		}
		count++
		status, kind, body := curl(t, server, command)
		if status != http.StatusOK || !json.Valid([]byte(body)) {
			t.Errorf("curl %s: %d %s", command, status, body)
		}
		if stream := strings.Contains(command, "N "); stream != (kind == "application/x-ndjson") {
			t.Errorf("curl %s: answered %s", command, kind)
		}
	}
	if count < 10 {
		t.Errorf("the page has %d examples that this test finds", count)
	}
}

// curl makes the request of a command line, and answers its status, its type
// and, of a stream, the first line.
func curl(t *testing.T, server, command string) (status int, kind, body string) {
	t.Helper()
	method, target, data, stream := http.MethodGet, "", "", false
	words := regexp.MustCompile(`'[^']*'|\S+`).FindAllString(command, -1)
	for i := 0; i < len(words); i++ {
		switch word := strings.Trim(words[i], "'"); {
		case word == "-X":
			i++
			method = words[i]
		case word == "-d":
			i++
			data = strings.Trim(words[i], "'")
		case strings.HasPrefix(word, "http://127.0.0.1:7400/"):
			target = server + strings.TrimPrefix(word, "http://127.0.0.1:7400")
		case word == "-sN":
			stream = true
		case word != "-s" && word != "-si" && word != "--compressed":
			t.Fatalf("curl %s: this test does not know %s", command, word)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if time.Since(began) > limit/2 {
		t.Errorf("curl %s: took %s", command, time.Since(began))
	}
	kind = resp.Header.Get("Content-Type")
	if stream {
		var first json.RawMessage
		if err := json.NewDecoder(resp.Body).Decode(&first); err != nil {
			t.Errorf("curl %s: %v", command, err)
		}
		return resp.StatusCode, kind, string(first)
	}
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, kind, string(all)
}

// TestPageHasEveryCodeAndTopic.
func TestPageHasEveryCodeAndTopic(t *testing.T) {
	t.Parallel()
	page := read(t, "docs/api.md")
	for _, code := range api.Codes() {
		if !regexp.MustCompile("(?m)^\\| .*`" + string(code) + "`.* \\| [45]").MatchString(page) {
			t.Errorf("docs/api.md has no line for the code %s", code)
		}
	}
	for _, topic := range api.Topics() {
		if !strings.Contains(page, "`"+string(topic)+"`") {
			t.Errorf("docs/api.md does not name the topic %s", topic)
		}
	}
}
