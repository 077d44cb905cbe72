package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/knadh/koanf/parsers/toml/v2"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// FileName is the name of the settings file in the data folder.
const FileName = "config.toml"

// maxFile is the maximum size of the settings file in bytes.
const maxFile = 1 << 20

// foreign lists variables that begin with EnvPrefix and are not settings of a node. The client
// commands, the demo and the build use them.
var foreign = []string{
	EnvEndpoint, EnvToken, EnvAccessKey, EnvSecretKey, EnvIdentity, EnvIdentityCommand, EnvProfile,
	EnvPrefix + "DEMO_PEER", EnvPrefix + "BIN",
}

const foreignPrefix = EnvPrefix + "TEST_"

// fromKubernetes reports whether Kubernetes set a variable to describe a service to the
// container. envLayer ignores such variables. For a service named holdfast their forms are
// HOLDFAST_SERVICE_HOST, HOLDFAST_SERVICE_PORT, HOLDFAST_SERVICE_PORT_<NAME>, HOLDFAST_PORT, and
// HOLDFAST_PORT_<N>_<PROTO> alone or followed by _PROTO, _PORT or _ADDR
// (https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables). These
// forms never name a setting, because no section of the settings is called service or port. The
// variables of a service named holdfast-s3 begin with HOLDFAST_S3_, as the settings of section s3
// do. For such a prefix fromKubernetes also requires that isService is true.
func fromKubernetes(variable string, environ map[string]string) bool {
	name := strings.TrimPrefix(variable, EnvPrefix)
	if aboutService(name) {
		return true
	}
	for i := range name {
		if name[i] == '_' && aboutService(name[i+1:]) && isService(EnvPrefix+name[:i+1], environ) {
			return true
		}
	}
	return false
}

// isService reports whether environ has the three variables that Kubernetes sets for every
// service: SERVICE_HOST, SERVICE_PORT and PORT, each with prefix before it.
func isService(prefix string, environ map[string]string) bool {
	port, err := strconv.ParseUint(environ[prefix+"SERVICE_PORT"], 10, 16)
	return environ[prefix+"SERVICE_HOST"] != "" && err == nil && port > 0 && strings.Contains(environ[prefix+"PORT"], "://")
}

// aboutService reports whether name has one of the forms of the variables of Kubernetes. name is
// the rest of a variable after the name of the service, such as SERVICE_HOST.
func aboutService(name string) bool {
	switch name {
	case "SERVICE_HOST", "SERVICE_PORT", "PORT":
		return true
	}
	if port, ok := strings.CutPrefix(name, "SERVICE_PORT_"); ok {
		return port != "" && strings.Trim(port, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
	}
	rest, ok := strings.CutPrefix(name, "PORT_")
	if !ok {
		return false
	}
	number, rest, _ := strings.Cut(rest, "_")
	protocol, last, more := strings.Cut(rest, "_")
	if n, err := strconv.ParseUint(number, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != number {
		return false
	}
	return slices.Contains([]string{"TCP", "UDP", "SCTP"}, protocol) &&
		(!more || slices.Contains([]string{"PROTO", "PORT", "ADDR"}, last))
}

// layer has the values of the settings from one source: the file, the environment or the flags.
// Both maps have the keys of the settings.
type layer struct {
	values map[string]func(field any) error // each function parses the value and stores it in *field
	origin map[string]source                // file, variable or flag that set the value
}

func newLayer() layer {
	return layer{values: map[string]func(any) error{}, origin: map[string]source{}}
}

func (l layer) set(key string, from source, store func(field any) error) {
	l.values[key], l.origin[key] = store, from
}

// DataDir returns the data folder as an absolute path: flag if it is not empty, else
// HOLDFAST_DATA, else $XDG_DATA_HOME/holdfast, else ~/.local/share/holdfast.
func DataDir(flag string, environ []string) (string, error) {
	env := lookup(environ)
	dir := flag
	if dir == "" {
		dir = env[envData]
	}
	if dir == "" && filepath.IsAbs(env["XDG_DATA_HOME"]) {
		dir = filepath.Join(env["XDG_DATA_HOME"], "holdfast")
	}
	if dir == "" && env["HOME"] != "" {
		dir = filepath.Join(env["HOME"], ".local", "share", "holdfast")
	}
	if dir == "" {
		return "", errors.New("no data folder: give --data DIR or " + envData)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("data folder: %w", err)
	}
	return dir, nil
}

// HasDataDir reports whether environ names a data folder with HOLDFAST_DATA.
func HasDataDir(environ []string) bool { return lookup(environ)[envData] != "" }

// Load reads the settings of the node whose data folder is dataDir. Each of these sources
// overrides those before it: the defaults, the file dataDir/config.toml if there is one, environ,
// which has the form of os.Environ, and the flags on the command line. flags is nil, or a parsed
// set to which Register has added the flags. Load returns all bad settings at once as an *Error.
// Any other error is a failure to read the file.
func Load(dataDir string, environ []string, flags *pflag.FlagSet) (Config, error) {
	c := Default()
	c.Data = dataDir
	file, found, err := fileLayer(filepath.Join(dataDir, FileName))
	if err != nil {
		return Config{}, err
	}
	env, more := envLayer(environ)
	found = append(found, more...)
	layers := []layer{file, env, flagLayer(flags)}

	origin, unread := map[string]source{}, map[string]bool{}
	for _, s := range table {
		for _, l := range layers {
			store, ok := l.values[s.key]
			if !ok {
				continue
			}
			origin[s.key] = l.origin[s.key]
			if err := store(s.field(&c)); err != nil {
				found = append(found, problem(s, l.origin[s.key], err))
				unread[s.key] = true
			}
		}
	}
	settleSecret(&c, layers, origin)
	if from, given := origin["cluster.secret_file"]; given {
		c.secretFrom = &from
	}
	settleRates(&c, origin)
	for _, p := range c.problems(func(s setting) source { return origin[s.key] }) {
		if !unread[p.Key] { // already named for what it is
			found = append(found, p)
		}
	}
	if err := asError(found); err != nil {
		return Config{}, err
	}
	return c, nil
}

// settleSecret stores in c the cluster secret or the secret file of the source with the highest
// precedence, and clears the values of the other sources. So --secret-file overrides
// HOLDFAST_SECRET. layers are in ascending order of precedence. An empty value counts as not set,
// because otherwise a shell variable without a value would create a cluster with a new secret. If
// one source sets both settings, both stay, and Validate rejects them.
func settleSecret(c *Config, layers []layer, origin map[string]source) {
	c.Cluster.Secret, c.Cluster.SecretFile = "", ""
	for _, l := range slices.Backward(layers) {
		for key, into := range map[string]*string{"cluster.secret": &c.Cluster.Secret, "cluster.secret_file": &c.Cluster.SecretFile} {
			if store, ok := l.values[key]; ok && store(into) == nil && *into != "" {
				origin[key] = l.origin[key]
			}
		}
		if c.Cluster.Secret != "" || c.Cluster.SecretFile != "" {
			return
		}
	}
}

// fileLayer reads the settings file. If there is no such file, it returns an empty layer.
func fileLayer(path string) (layer, []Problem, error) {
	l := newLayer()
	raw, err := readBounded(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil, nil
	}
	if err != nil {
		return l, nil, fmt.Errorf("settings: %w", err)
	}
	l, found := parseFile(path, raw)
	return l, found, nil
}

// parseFile parses the settings file, which is a TOML document. path is the name of the file in
// the problems.
func parseFile(path string, raw []byte) (layer, []Problem) {
	l := newLayer()
	k := koanf.New(".")
	if err := k.Load(document(raw), toml.Parser()); err != nil {
		return l, []Problem{{Source: position(path, err), Detail: err.Error()}}
	}
	from := source{name: path}
	var found []Problem
	for key, value := range k.All() {
		if slices.ContainsFunc(table, func(s setting) bool { return s.key == key }) {
			l.set(key, from, func(field any) error { return fromFile(field, value) })
			continue
		}
		if section, ok := value.(map[string]any); ok && len(section) == 0 && knownSection(key) {
			continue
		}
		found = append(found, Problem{Source: path, Detail: fmt.Sprintf("unknown key %q", key)})
	}
	slices.SortFunc(found, func(a, b Problem) int { return strings.Compare(a.Detail, b.Detail) })
	return l, found
}

func knownSection(name string) bool {
	return slices.ContainsFunc(table, func(s setting) bool { return s.section() == name })
}

// position returns path:line if err has the line of a syntax error, and path otherwise.
func position(path string, err error) string {
	var at interface{ Position() (row, column int) }
	if errors.As(err, &at) {
		row, _ := at.Position()
		return fmt.Sprintf("%s:%d", path, row)
	}
	return path
}

// document is a text in memory that implements the Provider interface of koanf.
type document []byte

// ReadBytes returns the text.
func (d document) ReadBytes() ([]byte, error) { return d, nil }

// Read implements koanf.Provider. It always fails, because koanf calls ReadBytes if there is a
// parser.
func (d document) Read() (map[string]any, error) {
	return nil, errors.New("settings: a document is read as bytes")
}

// envLayer returns the settings in environ. It returns a problem for each unknown variable that
// begins with EnvPrefix.
func envLayer(environ []string) (layer, []Problem) {
	l := newLayer()
	var found []Problem
	all := lookup(environ)
	for name, value := range all {
		if !strings.HasPrefix(name, EnvPrefix) || name == envData ||
			slices.Contains(foreign, name) || strings.HasPrefix(name, foreignPrefix) {
			continue
		}
		i := slices.IndexFunc(table, func(s setting) bool { return s.environment() == name })
		if i < 0 {
			if fromKubernetes(name, all) {
				continue
			}
			found = append(found, Problem{Source: name, Detail: "unknown environment variable"})
			continue
		}
		l.set(table[i].key, source{name: name}, func(field any) error { return fromText(field, value) })
	}
	slices.SortFunc(found, func(a, b Problem) int { return strings.Compare(a.Source, b.Source) })
	return l, found
}

// flagLayer returns the settings that flags on the command line set. flags can be nil.
func flagLayer(flags *pflag.FlagSet) layer {
	l := newLayer()
	if flags == nil {
		return l
	}
	for _, s := range table {
		f := flags.Lookup(s.flag)
		if s.flag == "" || f == nil || !f.Changed {
			continue
		}
		l.set(s.key, source{name: "--" + s.flag, flag: true}, func(field any) error {
			list, repeatable := f.Value.(pflag.SliceValue)
			into, ok := field.(*[]string)
			if repeatable && ok {
				*into = list.GetSlice()
				return nil
			}
			return fromText(field, f.Value.String())
		})
	}
	return l
}

// lookup returns environ, which has the form of os.Environ, as a map by name. If a name occurs
// twice, the last entry applies, as in os/exec.
func lookup(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok {
			env[name] = value
		}
	}
	return env
}

// readBounded returns the content of a file. It returns an error if the file is larger than limit
// bytes.
func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if int64(len(raw)) > limit {
		return nil, fmt.Errorf("read %s: larger than %d bytes", path, limit)
	}
	return raw, nil
}
