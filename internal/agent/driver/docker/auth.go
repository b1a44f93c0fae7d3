package docker

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/moby/moby/api/types/registry"
)

// dockerHub is what engines and their files call the registry of images that name
// none.
const (
	dockerHub    = "docker.io"
	dockerHubKey = "https://index.docker.io/v1/"
)

// authFile is a file as `docker login` writes it, so much of it as is about
// credentials.
type authFile struct {
	Auths map[string]struct {
		Auth          string `json:"auth"` // base64 of user:password
		Username      string `json:"username"`
		Password      string `json:"password"`
		IdentityToken string `json:"identitytoken"`
	} `json:"auths"`
	CredHelpers map[string]string `json:"credHelpers"`
	CredsStore  string            `json:"credsStore"`
}

// helperLimit bounds how long a credential helper may take: some ask a cloud.
const helperLimit = 30 * time.Second

// helperName is what a helper may be called: it becomes part of a program's name.
var helperName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// credentials are those for an image: the task's own, or the operator's. They
// are nil if there are none, and never in an error.
func (d *Driver) credentials(ctx context.Context, cfg *config) (*registry.AuthConfig, error) {
	named, err := reference.ParseDockerRef(cfg.image)
	if err != nil {
		return nil, err
	}
	host := reference.Domain(named)
	if a := cfg.auth; a.username != "" {
		if a.server == "" {
			a.server = serverKey(host)
		}
		return &registry.AuthConfig{Username: a.username, Password: a.password, ServerAddress: a.server}, nil
	}
	path := d.rules.Load().AuthFile
	if path == "" {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the node's credentials for registries: %w", err)
	}
	var file authFile
	if json.Unmarshal(b, &file) != nil { // its error may quote what is in there
		return nil, fmt.Errorf("read the node's credentials for registries: %s is no JSON as docker login writes it", path)
	}
	return file.find(ctx, host)
}

// serverKey is what engines compare with, for the credentials of a host.
func serverKey(host string) string {
	if host == dockerHub {
		return dockerHubKey
	}
	return host
}

// find looks for the credentials of a host: its own helper is asked first, then
// the one for all hosts, then the file itself counts.
func (f *authFile) find(ctx context.Context, host string) (*registry.AuthConfig, error) {
	server := serverKey(host)
	for _, helper := range []string{f.helperOf(host), f.CredsStore} {
		if helper == "" {
			continue
		}
		if found, err := askHelper(ctx, helper, server); err != nil || found != nil {
			return found, err
		}
	}
	for key, a := range f.Auths {
		if hostOf(key) != host {
			continue
		}
		found := &registry.AuthConfig{Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken, ServerAddress: server}
		if a.Auth != "" {
			plain, err := base64.StdEncoding.DecodeString(a.Auth)
			user, password, ok := strings.Cut(string(plain), ":")
			if err != nil || !ok {
				return nil, fmt.Errorf("read the node's credentials for registries: those of %s are no user and password in base64", key)
			}
			found.Username, found.Password = user, strings.Trim(password, "\x00")
		}
		if found.Username != "" || found.IdentityToken != "" {
			return found, nil
		}
	}
	return nil, nil
}

func (f *authFile) helperOf(host string) string {
	for key, helper := range f.CredHelpers {
		if hostOf(key) == host {
			return helper
		}
	}
	return ""
}

// hostOf is the host that a key of the file means: keys may be addresses.
func hostOf(key string) string {
	_, rest, is := strings.Cut(key, "://")
	if !is {
		rest = key
	}
	host, _, _ := strings.Cut(rest, "/")
	if host == "index.docker.io" || host == "registry-1.docker.io" {
		return dockerHub
	}
	return host
}

// askHelper asks a credential helper. It answers nil if that has none.
func askHelper(ctx context.Context, helper, server string) (*registry.AuthConfig, error) {
	if !helperName.MatchString(helper) {
		return nil, fmt.Errorf("%q is no name of a credential helper", helper)
	}
	ctx, cancel := context.WithTimeout(ctx, helperLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker-credential-"+helper, "get")
	cmd.Stdin = strings.NewReader(server + "\n")
	var out bytes.Buffer
	cmd.Stdout = &out
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if _, failed := errors.AsType[*exec.ExitError](err); failed && ctx.Err() == nil {
		said := strings.TrimSpace(out.String())
		if strings.HasPrefix(said, "credentials not found") {
			return nil, nil
		}
		return nil, fmt.Errorf("credential helper %s for %s: %s (%w)", cmd.Args[0], server, said, err)
	}
	if err != nil {
		return nil, fmt.Errorf("credential helper %s for %s: %w", cmd.Args[0], server, err)
	}
	var answer struct{ Username, Secret string }
	if json.Unmarshal(out.Bytes(), &answer) != nil || answer.Secret == "" {
		return nil, fmt.Errorf("credential helper %s for %s: it answers no credentials", cmd.Args[0], server)
	}
	const isToken = "<token>"
	if answer.Username == isToken {
		return &registry.AuthConfig{IdentityToken: answer.Secret, ServerAddress: server}, nil
	}
	return &registry.AuthConfig{Username: answer.Username, Password: answer.Secret, ServerAddress: server}, nil
}
