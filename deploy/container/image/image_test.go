package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/x509"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/config"
)

// build runs the command for programs of these architectures, and returns the files of the archive by their paths.
func build(t *testing.T, archs ...string) map[string][]byte {
	t.Helper()
	dir := t.TempDir()
	out := filepath.Join(dir, "image.tar")
	args := []string{"-version", "1.2.3", "-revision", "abc", "-tags", "1.2.3,latest", "-epoch", "1700000000", "-license", "../../../LICENSE", "-out", out}
	for _, arch := range archs {
		path := filepath.Join(dir, arch)
		if err := os.WriteFile(path, []byte("program for "+arch), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "-program", arch+"="+path)
	}
	if err := run(args, io.Discard); err != nil {
		t.Fatal(err)
	}
	archive, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"": archive}
	for _, e := range unpack(t, archive) {
		files[e.path] = e.data
	}
	return files
}

// unpack returns the entries of a tar archive, and fails unless each has the time of the build.
func unpack(t *testing.T, archive []byte) (entries []entry) {
	t.Helper()
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.ModTime.Unix() != 1700000000 || h.Uid != h.Gid {
			t.Errorf("%s has the time %v and the owner %d:%d", h.Name, h.ModTime, h.Uid, h.Gid)
		}
		entries = append(entries, entry{path: h.Name, mode: h.Mode, owner: h.Uid, data: data})
	}
}

// read decodes the JSON of a file that a descriptor names, and fails unless its digest and size are right.
func read(t *testing.T, files map[string][]byte, d descriptor, mediaType string, v any) []byte {
	t.Helper()
	data, ok := files[blobPath(d.Digest)]
	if !ok || digestOf(data) != d.Digest || len(data) != d.Size || d.MediaType != mediaType {
		t.Fatalf("%+v names %d bytes with the digest %s", d, len(data), digestOf(data))
	}
	if v != nil {
		if err := json.Unmarshal(data, v); err != nil {
			t.Fatal(err)
		}
	}
	return data
}

// top decodes index.json, which names one image by these tags, and returns its descriptor.
func top(t *testing.T, files map[string][]byte, tags ...string) descriptor {
	t.Helper()
	var all index
	if err := json.Unmarshal(files["index.json"], &all); err != nil || len(all.Manifests) != len(tags) {
		t.Fatalf("index.json: %s, %v", files["index.json"], err)
	}
	if string(files["oci-layout"]) != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("oci-layout is %s", files["oci-layout"])
	}
	for i, m := range all.Manifests {
		tag, name := m.Annotations["org.opencontainers.image.ref.name"], m.Annotations["io.containerd.image.name"]
		if tag != tags[i] || name != "localhost/holdfast:"+tags[i] || m.Digest != all.Manifests[0].Digest {
			t.Errorf("entry %d has the tag %q, the name %q and the digest %s", i, tag, name, m.Digest)
		}
	}
	return all.Manifests[0]
}

// contents reads an image, checks every digest in it, and returns its configuration and the entries of its layers.
func contents(t *testing.T, files map[string][]byte, image descriptor) (imageConfig, map[string]entry) {
	t.Helper()
	var m manifest
	var c imageConfig
	read(t, files, image, typeManifest, &m)
	read(t, files, m.Config, typeConfig, &c)
	entries := map[string]entry{}
	if len(m.Layers) != 2 || len(c.RootFS.DiffIDs) != 2 || len(c.History) != 2 {
		t.Fatalf("%d layers, the configuration has %d with %d steps", len(m.Layers), len(c.RootFS.DiffIDs), len(c.History))
	}
	for i, l := range m.Layers {
		gz, err := gzip.NewReader(bytes.NewReader(read(t, files, l, typeLayer, nil)))
		if err != nil {
			t.Fatal(err)
		}
		archive, err := io.ReadAll(gz)
		if err != nil {
			t.Fatal(err)
		}
		if digestOf(archive) != c.RootFS.DiffIDs[i] {
			t.Errorf("layer %d has the digest %s, the configuration says %s", i, digestOf(archive), c.RootFS.DiffIDs[i])
		}
		for _, e := range unpack(t, archive) {
			entries[e.path] = e
		}
	}
	return c, entries
}

// The same input gives the same bytes, at any place and time.
func TestTwoBuildsAreTheSameBytes(t *testing.T) {
	if !bytes.Equal(build(t, "amd64", "arm64")[""], build(t, "amd64", "arm64")[""]) {
		t.Error("two builds differ")
	}
}

// An image holds the program, root certificates that parse, a user other than root, and a data folder of that user. All
// digests in it are right.
func TestAnImageHasWhatANodeNeeds(t *testing.T) {
	files := build(t, "arm64")
	c, entries := contents(t, files, top(t, files, "1.2.3", "latest"))
	if c.Architecture != "arm64" || c.OS != "linux" {
		t.Errorf("it is for %s, %s", c.Architecture, c.OS)
	}
	if e := entries["usr/bin/holdfast"]; string(e.data) != "program for arm64" || e.mode != 0o755 || e.owner != 0 {
		t.Errorf("the program is %q, mode %o, of %d", e.data, e.mode, e.owner)
	}
	for path, mode := range map[string]int64{"var/lib/holdfast/": 0o700, "run/holdfast/": 0o700} {
		if e, ok := entries[path]; !ok || e.mode != mode || e.owner != user {
			t.Errorf("%s: mode %o, of %d, there: %v", path, e.mode, e.owner, ok)
		}
	}
	if e := entries["tmp/"]; e.mode != 0o1777 {
		t.Errorf("/tmp has the mode %o", e.mode)
	}
	pool := x509.NewCertPool()
	roots := entries["etc/ssl/certs/ca-certificates.crt"].data
	if !pool.AppendCertsFromPEM(roots) {
		t.Fatal("no root certificates")
	}
	if n := bytes.Count(roots, []byte("BEGIN CERTIFICATE")); n < 80 || n > 300 {
		t.Errorf("%d root certificates", n)
	}
	if !strings.Contains(string(entries["etc/passwd"].data), "holdfast:x:65532:65532:") {
		t.Errorf("passwd: %s", entries["etc/passwd"].data)
	}
}

// The configuration runs the node as the user holdfast with its data in a volume. A node accepts the settings of the
// image, and with them listens on the ports that the image exposes, beyond loopback.
func TestTheImageRunsANode(t *testing.T) {
	files := build(t, "amd64")
	c, _ := contents(t, files, top(t, files, "1.2.3", "latest"))
	run := c.Config
	if run.User != "65532:65532" || !slices.Equal(run.Entrypoint, []string{"/usr/bin/holdfast"}) || !slices.Equal(run.Cmd, []string{"run"}) || run.StopSignal != "SIGTERM" {
		t.Errorf("%+v", run)
	}
	if _, ok := run.Volumes["/var/lib/holdfast"]; !ok || len(run.Volumes) != 1 {
		t.Errorf("volumes %v", run.Volumes)
	}
	if len(run.Healthcheck.Test) < 2 || run.Healthcheck.Test[1] != "/usr/bin/holdfast" {
		t.Errorf("health check %v", run.Healthcheck.Test)
	}
	if l := run.Labels; l["org.opencontainers.image.version"] != "1.2.3" || l["org.opencontainers.image.revision"] != "abc" || l["org.opencontainers.image.created"] != "2023-11-14T22:13:20Z" {
		t.Errorf("labels %v", l)
	}
	settings, err := config.Load(t.TempDir(), run.Env, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"4001/tcp", "4001/udp", "9096/tcp"}
	for _, listen := range []string{settings.Pinning.Listen, settings.S3.Listen, settings.Console.Listen, settings.Admin.Listen} {
		port, ok := strings.CutPrefix(listen, "0.0.0.0:")
		if !ok {
			t.Errorf("it listens on %s", listen)
		}
		want = append(want, port+"/tcp")
	}
	slices.Sort(want)
	var exposed []string
	for port := range run.ExposedPorts {
		exposed = append(exposed, port)
	}
	slices.Sort(exposed)
	if !slices.Equal(exposed, want) {
		t.Errorf("exposed are %v, want %v", exposed, want)
	}
}

// An archive for one architecture has the file from which docker before release 25 loads it, with every tag. An archive
// for several has an index of them instead.
func TestAnArchiveLoadsWhereItIsFor(t *testing.T) {
	one := build(t, "amd64")
	var load []loadable
	if err := json.Unmarshal(one["manifest.json"], &load); err != nil || len(load) != 1 {
		t.Fatalf("%s, %v", one["manifest.json"], err)
	}
	if !slices.Equal(load[0].RepoTags, []string{"localhost/holdfast:1.2.3", "localhost/holdfast:latest"}) {
		t.Errorf("tags %v", load[0].RepoTags)
	}
	for _, path := range append(load[0].Layers, load[0].Config) {
		if _, ok := one[path]; !ok {
			t.Errorf("manifest.json names %s, which is not there", path)
		}
	}
	several := build(t, "amd64", "arm64")
	if _, ok := several["manifest.json"]; ok {
		t.Error("manifest.json can name one image only")
	}
	var both index
	read(t, several, top(t, several, "1.2.3"), typeIndex, &both)
	var archs []string
	for _, image := range both.Manifests {
		c, _ := contents(t, several, image)
		if c.Architecture != image.Platform.Architecture {
			t.Errorf("the image for %s says that it is for %s", image.Platform.Architecture, c.Architecture)
		}
		archs = append(archs, c.Architecture)
	}
	if !slices.Equal(archs, []string{"amd64", "arm64"}) {
		t.Errorf("images for %v", archs)
	}
}

// A build that fails says why and leaves no file.
func TestAFailedBuildLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	good := []string{"-version", "1", "-license", "../../../LICENSE", "-out", filepath.Join(dir, "out.tar")}
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"no program", good, "-program"},
		{"no architecture", append(slices.Clone(good), "-program", "x"), "ARCH=FILE"},
		{"a program that is not there", append(slices.Clone(good), "-program", "amd64="+filepath.Join(dir, "none")), "none"},
		{"an empty program", append(slices.Clone(good), "-program", "amd64="+empty), "0 bytes"},
		{"no license", append(slices.Clone(good), "-license", filepath.Join(dir, "no license"), "-program", "amd64="+empty), "no license"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := run(tc.args, io.Discard); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
			left, err := filepath.Glob(filepath.Join(dir, "out*"))
			if err != nil || len(left) > 0 {
				t.Errorf("left are %v, %v", left, err)
			}
		})
	}
}
