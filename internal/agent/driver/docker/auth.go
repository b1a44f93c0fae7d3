package docker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
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
	return file.find(ctx, named)
}

// serverKey is what engines compare with, for the credentials of a host.
func serverKey(host string) string {
	if host == dockerHub {
		return dockerHubKey
	}
	return host
}

// find looks for the credentials of a repository: its registry's own helper is
// asked first, then the one for all, then the file itself counts.
func (f *authFile) find(ctx context.Context, named reference.Named) (*registry.AuthConfig, error) {
	server := serverKey(reference.Domain(named))
	helpers := []string{f.CredsStore}
	if keys := keysFor(f.CredHelpers, named); len(keys) > 0 {
		helpers = []string{f.CredHelpers[keys[0]], f.CredsStore}
	}
	for _, helper := range helpers {
		if helper == "" {
			continue
		}
		if found, err := askHelper(ctx, helper, server); err != nil || found != nil {
			return found, err
		}
	}
	for _, key := range keysFor(f.Auths, named) {
		a := f.Auths[key]
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

// keysFor are the keys of a file that are for a repository, the best first: one
// that names more of the repository's path is better, then the one that docker
// login writes for the registry.
func keysFor[V any](of map[string]V, named reference.Named) []string {
	host, path := reference.Domain(named), reference.Path(named)
	paths := map[string]string{}
	for key := range of {
		of, below := meant(key)
		if of == host && strings.HasPrefix(path+"/", below) {
			paths[key] = below
		}
	}
	exact := func(key string) int {
		if key == serverKey(host) {
			return 0
		}
		return 1
	}
	return slices.SortedFunc(maps.Keys(paths), func(a, b string) int {
		return cmp.Or(len(paths[b])-len(paths[a]), exact(a)-exact(b), strings.Compare(a, b))
	})
}

// meant is the host that a key of the file means, and the path below it with a
// slash at its end, empty for all of the host. Keys may be addresses, with the
// version of the API as their path. It answers no host for the keys of what is
// the login's own.
func meant(key string) (host, path string) {
	_, rest, is := strings.Cut(key, "://")
	if !is {
		rest = key
	}
	host, path, _ = strings.Cut(rest, "/")
	path = strings.Trim(path, "/")
	if host == "index.docker.io" || host == "registry-1.docker.io" {
		host = dockerHub
	}
	switch {
	case path == "v1" || path == "v2" || path == "":
		return host, ""
	case host == dockerHub && (path == "v1/access-token" || path == "v1/refresh-token"):
		return "", ""
	}
	return host, path + "/"
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
