package main

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Media types of the OCI image format.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// description is the part of an image that is the same for all architectures.
type description struct {
	name     string   // with the registry, without a tag
	tags     []string // an archive for several architectures has the first only
	version  string
	revision string // commit of the source; may be empty
	license  []byte
	created  time.Time
}

// ports are those of the listeners that the image turns on.
var ports = []string{"4001/tcp", "4001/udp", "9000/tcp", "9001/tcp", "9094/tcp", "9096/tcp", "9097/tcp"}

// environment has the settings that a container needs, because a listener on loopback cannot be
// reached from outside of it.
var environment = []string{
	"PATH=/usr/bin",
	"HOLDFAST_DATA=" + dataFolder,
	"HOLDFAST_PINNING_LISTEN=0.0.0.0:9097",
	"HOLDFAST_S3_LISTEN=0.0.0.0:9000",
	"HOLDFAST_CONSOLE_LISTEN=0.0.0.0:9001",
	"HOLDFAST_ADMIN_LISTEN=0.0.0.0:9094",
}

// platform is the kind of machine that an image is for.
type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// descriptor names a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// index lists images of several architectures, or those of an archive.
type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

// manifest lists the parts of an image.
type manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	Config        descriptor        `json:"config"`
	Layers        []descriptor      `json:"layers"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// imageConfig says how a container of the image is run.
type imageConfig struct {
	Created string `json:"created"`
	platform
	Config struct {
		User         string
		ExposedPorts map[string]struct{}
		Env          []string
		Entrypoint   []string
		Cmd          []string
		Volumes      map[string]struct{}
		WorkingDir   string
		Labels       map[string]string
		StopSignal   string
		Healthcheck  healthcheck // not in OCI's specification, which lets other fields be; docker reads it
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
	History []history `json:"history"`
}

// healthcheck is a command that runs in the container. Times are in nanoseconds.
type healthcheck struct {
	Test                           []string
	Interval, Timeout, StartPeriod time.Duration
	Retries                        int
}

type history struct {
	Created string `json:"created"`
	By      string `json:"created_by"`
}

// loadable is the entry of manifest.json, which docker before release 25 reads instead of index.json.
type loadable struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// labels describe the image in the terms of OCI.
func (d *description) labels() map[string]string {
	const home = "https://github.com/holdfast-ipfs/holdfast"
	l := map[string]string{
		"org.opencontainers.image.title":         "Holdfast",
		"org.opencontainers.image.description":   "Node of an IPFS pinning cluster",
		"org.opencontainers.image.version":       d.version,
		"org.opencontainers.image.created":       d.created.Format(time.RFC3339),
		"org.opencontainers.image.source":        home,
		"org.opencontainers.image.url":           home,
		"org.opencontainers.image.documentation": home + "/tree/main/docs",
		"org.opencontainers.image.licenses":      "Apache-2.0",
	}
	if d.revision != "" {
		l["org.opencontainers.image.revision"] = d.revision
	}
	return l
}

// config returns the configuration of the image for arch.
func (d *description) config(arch string, layers []layer) imageConfig {
	set := func(names ...string) map[string]struct{} {
		m := make(map[string]struct{}, len(names))
		for _, n := range names {
			m[n] = struct{}{}
		}
		return m
	}
	created := d.created.Format(time.RFC3339)
	c := imageConfig{Created: created, platform: platform{Architecture: arch, OS: "linux"}}
	c.Config.User = fmt.Sprintf("%d:%d", user, user)
	c.Config.ExposedPorts = set(ports...)
	c.Config.Env = environment
	c.Config.Entrypoint = []string{programFile}
	c.Config.Cmd = []string{"run"}
	c.Config.Volumes = set(dataFolder)
	c.Config.WorkingDir = dataFolder
	c.Config.Labels = d.labels()
	c.Config.StopSignal = "SIGTERM"
	c.Config.Healthcheck = healthcheck{
		Test: []string{"CMD", programFile, "status"}, Interval: 30 * time.Second, Timeout: 10 * time.Second, StartPeriod: 2 * time.Minute, Retries: 3,
	}
	c.RootFS.Type = "layers"
	for _, l := range layers {
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, l.diffID)
	}
	c.History = []history{{created, "root certificates, user and folders"}, {created, "holdfast " + d.version}}
	return c
}

// archive collects the blobs of an archive.
type archive struct{ blobs []blob }

// add adds a blob and returns its descriptor.
func (a *archive) add(mediaType string, b blob) descriptor {
	if !slices.ContainsFunc(a.blobs, func(o blob) bool { return o.digest == b.digest }) {
		a.blobs = append(a.blobs, b)
	}
	return descriptor{MediaType: mediaType, Digest: b.digest, Size: len(b.data)}
}

// addJSON adds a blob with the JSON form of v.
func (a *archive) addJSON(mediaType string, v any) (descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return a.add(mediaType, newBlob(data)), nil
}

// addImage adds the image of one architecture. It returns the descriptor of its manifest, and the
// entry of manifest.json.
func (d *description) addImage(a *archive, base layer, p program) (descriptor, loadable, error) {
	binary, err := p.layer(d.created)
	if err != nil {
		return descriptor{}, loadable{}, err
	}
	layers := []layer{base, binary}
	config, err := a.addJSON(typeConfig, d.config(p.arch, layers))
	if err != nil {
		return descriptor{}, loadable{}, err
	}
	m := manifest{SchemaVersion: 2, MediaType: typeManifest, Config: config, Annotations: d.labels()}
	load := loadable{Config: blobPath(config.Digest)}
	for _, tag := range d.tags {
		load.RepoTags = append(load.RepoTags, d.name+":"+tag)
	}
	for _, l := range layers {
		m.Layers = append(m.Layers, a.add(typeLayer, l.blob))
		load.Layers = append(load.Layers, blobPath(l.digest))
	}
	image, err := a.addJSON(typeManifest, m)
	image.Platform = &platform{Architecture: p.arch, OS: "linux"}
	return image, load, err
}

// write writes the archive with the images of all programs. With one program, index.json names the
// image by each tag, so that podman and docker of any release load it with all tags. With several,
// index.json has one entry: an index of the images, with the first tag. So skopeo copies the archive
// to a registry without being told a tag.
func (d *description) write(w io.Writer, programs []program) error {
	base, err := newLayer(baseEntries(d.license), d.created)
	if err != nil {
		return err
	}
	var a archive
	var images []descriptor
	var load []loadable
	for _, p := range programs {
		image, l, err := d.addImage(&a, base, p)
		if err != nil {
			return err
		}
		images, load = append(images, image), append(load, l)
	}
	root, tags := images[0], d.tags
	if len(images) > 1 {
		load, tags = nil, tags[:1]
		if root, err = a.addJSON(typeIndex, index{SchemaVersion: 2, MediaType: typeIndex, Manifests: images}); err != nil {
			return err
		}
	}
	top := index{SchemaVersion: 2, MediaType: typeIndex}
	for _, tag := range tags {
		root.Annotations = map[string]string{
			"io.containerd.image.name":          d.name + ":" + tag,
			"org.opencontainers.image.ref.name": tag,
		}
		top.Manifests = append(top.Manifests, root)
	}
	return a.write(w, d.created, top, load)
}

// write writes the files of the archive. It omits manifest.json if load is empty.
func (a *archive) write(w io.Writer, created time.Time, top index, load []loadable) error {
	files := []entry{{path: "blobs/", mode: 0o755}, {path: "blobs/sha256/", mode: 0o755}}
	for _, b := range a.blobs {
		files = append(files, entry{path: blobPath(b.digest), mode: 0o644, data: b.data})
	}
	slices.SortFunc(files, func(x, y entry) int { return strings.Compare(x.path, y.path) })
	named := []struct {
		path string
		v    any
	}{{"index.json", top}, {"manifest.json", load}, {"oci-layout", map[string]string{"imageLayoutVersion": "1.0.0"}}}
	for _, n := range named {
		if n.path == "manifest.json" && len(load) == 0 {
			continue
		}
		data, err := json.Marshal(n.v)
		if err != nil {
			return err
		}
		files = append(files, entry{path: n.path, mode: 0o644, data: data})
	}
	return writeTar(w, files, created)
}

// blobPath returns the path of a blob in an archive.
func blobPath(digest string) string {
	return "blobs/" + strings.Replace(digest, ":", "/", 1)
}

// writeTar writes a tar archive of entries, all with the same time.
func writeTar(out io.Writer, entries []entry, created time.Time) error {
	w := tar.NewWriter(out)
	for _, e := range entries {
		h := tar.Header{
			Name: e.path, Mode: e.mode, Uid: e.owner, Gid: e.owner, Size: int64(len(e.data)), ModTime: created,
			Typeflag: tar.TypeReg, Format: tar.FormatUSTAR,
		}
		if strings.HasSuffix(e.path, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(&h); err != nil {
			return fmt.Errorf("%s: %w", e.path, err)
		}
		if _, err := w.Write(e.data); err != nil {
			return fmt.Errorf("%s: %w", e.path, err)
		}
	}
	return w.Close()
}
