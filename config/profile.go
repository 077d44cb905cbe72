package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/knadh/koanf/parsers/toml/v2"
)

// Variables of the client commands.
const (
	EnvEndpoint        = EnvPrefix + "ENDPOINT" // URLs, joined by commas or spaces
	EnvToken           = EnvPrefix + "TOKEN"
	EnvAccessKey       = EnvPrefix + "ACCESS_KEY"
	EnvSecretKey       = EnvPrefix + "SECRET_KEY"
	EnvIdentity        = EnvPrefix + "IDENTITY"
	EnvIdentityCommand = EnvPrefix + "IDENTITY_COMMAND"
	EnvProfile         = EnvPrefix + "PROFILE"
)

// Profile has the addresses and credentials with which a client command uses a cluster.
type Profile struct {
	Endpoints       []string // URLs of object gateways
	Pinning         []string // URLs of pinning APIs; empty: the gateways tell them
	Token           string
	AccessKey       string
	SecretKey       string
	Identity        string // path of an identity file
	IdentityCommand string // shell command that prints the passphrase of the identity, and after it optionally the identity
	Console         string // URL of the console, with the page that opens share links, and the web API
	// Web are URLs of consoles for requests to the web API: Console, unless other Endpoints than those of the
	// profile are used. Empty: the gateways tell them. It is not in the file.
	Web []string
}

// fields returns the keys of a profile in the file, each with a pointer to the field that stores
// its value.
func (p *Profile) fields() map[string]any {
	return map[string]any{
		"endpoints": &p.Endpoints, "pinning": &p.Pinning, "token": &p.Token, "access_key": &p.AccessKey, "secret_key": &p.SecretKey,
		"identity": &p.Identity, "identity_command": &p.IdentityCommand, "console": &p.Console,
	}
}

// Profiles has the profiles of a user. Each profile describes one cluster.
type Profiles struct {
	Default string // name of the profile that commands without --profile use; "" if there is none
	Named   map[string]Profile
}

// ClientFile returns the path of the file with the profiles: $XDG_CONFIG_HOME/holdfast/config.toml,
// or ~/.config/holdfast/config.toml. environ has the form of os.Environ.
func ClientFile(environ []string) (string, error) {
	env := lookup(environ)
	if base := env["XDG_CONFIG_HOME"]; filepath.IsAbs(base) {
		return filepath.Join(base, "holdfast", FileName), nil
	}
	if env["HOME"] == "" {
		return "", errors.New("no folder for profiles: HOME is not set")
	}
	return filepath.Join(env["HOME"], ".config", "holdfast", FileName), nil
}

// StateDir returns the folder in which client commands store the journals of uploads:
// $XDG_STATE_HOME/holdfast, or ~/.local/state/holdfast. environ has the form of os.Environ.
func StateDir(environ []string) (string, error) {
	env := lookup(environ)
	if base := env["XDG_STATE_HOME"]; filepath.IsAbs(base) {
		return filepath.Join(base, "holdfast"), nil
	}
	if env["HOME"] == "" {
		return "", errors.New("no folder for journals: HOME is not set")
	}
	return filepath.Join(env["HOME"], ".local", "state", "holdfast"), nil
}

// ReadProfiles reads the file with the profiles. If there is no such file, it returns no profiles
// and no error. It returns an error if other users can read the file, because the file contains
// secrets.
func ReadProfiles(path string) (Profiles, error) {
	all := Profiles{Named: map[string]Profile{}}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return all, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return all, fmt.Errorf("%s has the mode %04o, and others can read its secrets: run chmod 600 %s", path, info.Mode().Perm(), path)
	}
	raw, err := readBounded(path, maxFile)
	if err != nil {
		return all, err
	}
	tree, err := toml.Parser().Unmarshal(raw)
	if err != nil {
		return all, fmt.Errorf("%s: %w", position(path, err), err)
	}
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		var ok bool
		switch key {
		case "default":
			all.Default, ok = tree[key].(string)
		case "profiles":
			var named map[string]any
			if named, ok = tree[key].(map[string]any); ok {
				err = all.read(named)
			}
		default:
			return all, fmt.Errorf("%s: unknown key %q", path, key)
		}
		if !ok {
			return all, fmt.Errorf("%s: %s has the wrong type", path, key)
		}
		if err != nil {
			return all, fmt.Errorf("%s: %w", path, err)
		}
	}
	return all, nil
}

func (all *Profiles) read(named map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(named)) {
		table, ok := named[name].(map[string]any)
		if !ok {
			return fmt.Errorf("profiles.%s is not a table", name)
		}
		var p Profile
		fields := p.fields()
		for _, key := range slices.Sorted(maps.Keys(table)) {
			field, known := fields[key]
			if !known {
				return fmt.Errorf("unknown key %q", "profiles."+name+"."+key)
			}
			if err := fromFile(field, table[key]); err != nil {
				return fmt.Errorf("profiles.%s.%s: %w", name, key, err)
			}
		}
		all.Named[name] = p
	}
	return nil
}

// profileName matches the allowed names of profiles. These names need no quotes in TOML.
var profileName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// ErrProfile is the error for a name of a profile that is malformed, already used, or unknown.
// Errors that say more wrap it.
var ErrProfile = errors.New("bad profile")

// AddProfile appends a profile to the file at path. If there is no file, it creates one with mode
// 0600, in which the new profile is the default. The error wraps ErrProfile if the name is
// malformed or already used.
func AddProfile(path, name string, p Profile) error {
	if !profileName.MatchString(name) {
		return fmt.Errorf("%w: the name %q does not consist of 1 to 64 letters, digits, - and _", ErrProfile, name)
	}
	all, err := ReadProfiles(path)
	if err != nil {
		return err
	}
	if _, there := all.Named[name]; there {
		return fmt.Errorf("%w: %s has a profile %s already: change it there", ErrProfile, path, name)
	}
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var b strings.Builder
	if len(strings.TrimSpace(string(before))) == 0 {
		fmt.Fprintf(&b, "default = %s\n", strconv.Quote(name))
	} else {
		b.Write(before)
		if !strings.HasSuffix(b.String(), "\n") {
			b.WriteByte('\n')
		}
	}
	section, err := toml.Parser().Marshal(map[string]any{"profiles": map[string]any{name: p.values()}})
	if err != nil {
		return err
	}
	_, body, _ := strings.Cut(string(section), "[profiles."+name+"]") // the parent table may be there
	fmt.Fprintf(&b, "\n[profiles.%s]%s", name, body)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return replaceFile(path, b.String())
}

// values returns the fields of p that are not empty, by their keys in the file.
func (p *Profile) values() map[string]any {
	set := map[string]any{}
	for key, field := range p.fields() {
		switch v := field.(type) {
		case *[]string:
			if len(*v) > 0 {
				set[key] = *v
			}
		case *string:
			if *v != "" {
				set[key] = *v
			}
		}
	}
	return set
}

// replaceFile replaces the content of a file, or creates the file with mode 0600. After a crash
// the file has either its old or its new content.
func replaceFile(path, text string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close() // may be closed already
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// ClientProfile returns the profile that a client command uses. This is the profile called name;
// if name is empty, the profile that HOLDFAST_PROFILE names; if that is empty too, the default
// profile of the file. Variables in environ override fields of the profile. If the result has no
// endpoint, ClientProfile uses AWS_ENDPOINT_URL. If it has neither a token nor a key pair,
// ClientProfile uses AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; `holdfast key create --env`
// prints these variables. The error wraps ErrProfile if there is no profile with the given name.
func ClientProfile(name string, environ []string) (Profile, error) {
	env := lookup(environ)
	if name == "" {
		name = env[EnvProfile]
	}
	path, err := ClientFile(environ)
	if err != nil && name != "" {
		return Profile{}, fmt.Errorf("%w: %q: %w", ErrProfile, name, err)
	}
	var all Profiles
	if err == nil {
		if all, err = ReadProfiles(path); err != nil {
			return Profile{}, err
		}
	}
	if name == "" {
		name = all.Default
	}
	p, found := all.Named[name]
	if name != "" && !found {
		return Profile{}, fmt.Errorf("%w: %s has no profile %q", ErrProfile, path, name)
	}
	if p.Console != "" {
		p.Web = []string{p.Console}
	}
	p.override(env)
	return p, nil
}

// Use replaces the endpoints. The addresses of the other APIs in the profile may be those of another cluster,
// so Use removes them.
func (p *Profile) Use(endpoints []string) { p.Endpoints, p.Pinning, p.Web = endpoints, nil, nil }

func (p *Profile) override(env map[string]string) {
	if list := strings.FieldsFunc(env[EnvEndpoint], func(r rune) bool { return r == ',' || r == ' ' }); len(list) > 0 {
		p.Use(list)
	}
	if len(p.Endpoints) == 0 && env["AWS_ENDPOINT_URL"] != "" {
		p.Use([]string{env["AWS_ENDPOINT_URL"]})
	}
	switch {
	case env[EnvToken] != "":
		p.Token, p.AccessKey, p.SecretKey = env[EnvToken], "", ""
	case env[EnvAccessKey] != "":
		p.Token, p.AccessKey, p.SecretKey = "", env[EnvAccessKey], env[EnvSecretKey]
	case p.Token == "" && p.AccessKey == "":
		p.AccessKey, p.SecretKey = env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"]
	}
	if env[EnvIdentity] != "" {
		p.Identity = env[EnvIdentity]
	}
	if env[EnvIdentityCommand] != "" {
		p.IdentityCommand = env[EnvIdentityCommand]
	}
}
