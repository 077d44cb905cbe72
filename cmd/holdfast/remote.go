package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime/debug"
	"strings"
	"unicode/utf8"

	gateway "github.com/holdfast-ipfs/holdfast/api/client"
	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/spf13/cobra"
)

// s3Scheme is the prefix of arguments that name buckets and objects.
const s3Scheme = "s3://"

// clientMemory is the soft memory limit of the Go runtime in client commands, in bytes. An upload
// of a stream buffers 32 MiB. The process uses 30 MiB in addition to the limit.
const clientMemory = 60 << 20

// remote has the flags with which a client command finds a cluster and authenticates.
type remote struct {
	profile   string
	endpoints []string
	token     string
}

// remoteFlags adds the flags of remote to cmd.
func (a *app) remoteFlags(cmd *cobra.Command) *remote {
	r := new(remote)
	cmd.Flags().StringVar(&r.profile, "profile", "", "`name` of a profile, see holdfast profile --help (default $HOLDFAST_PROFILE)")
	cmd.Flags().StringArrayVar(&r.endpoints, "endpoint", nil, "`url` of the S3 gateway of a node; repeatable (default $HOLDFAST_ENDPOINT)")
	cmd.Flags().StringVar(&r.token, "token", "", "`token` of an API key; others can see it in the list of processes (default $HOLDFAST_TOKEN)")
	mustNotBeEmpty(cmd, "profile", "endpoint", "token")
	mustBeText(cmd, "profile", "endpoint", "token")
	a.completeProfiles(cmd)
	return r
}

// remoteSettings returns the profile that the flags and the environment select, with the fields
// that they override. A flag takes precedence over the environment, and the environment over the
// file of profiles.
func (a *app) remoteSettings(r *remote) (config.Profile, error) {
	p, err := config.ClientProfile(r.profile, a.environ)
	if errors.Is(err, config.ErrProfile) {
		return p, usagef("%v", err)
	}
	if err != nil {
		return p, err
	}
	if len(r.endpoints) > 0 {
		p.Use(r.endpoints)
	}
	if r.token != "" {
		p.Token, p.AccessKey, p.SecretKey = r.token, "", ""
	}
	return p, nil
}

// cluster returns a client of the cluster that the flags, the environment and the profile select.
// The caller closes the client.
func (a *app) cluster(cmd *cobra.Command, r *remote) (*gateway.Client, error) {
	p, err := a.remoteSettings(r)
	if err != nil {
		return nil, err
	}
	return a.clusterOf(cmd, p)
}

// clusterOf returns a client for the endpoints and the credentials in p. It returns a usageError
// if p has no endpoint or no credentials. The caller closes the client.
func (a *app) clusterOf(cmd *cobra.Command, p config.Profile) (*gateway.Client, error) {
	if len(p.Endpoints) == 0 {
		return nil, usagef("%s: no cluster is named: give --endpoint URL, set HOLDFAST_ENDPOINT, or run holdfast profile add", called(cmd))
	}
	if p.Token == "" && p.AccessKey == "" {
		return nil, usagef("%s: no key is given: set HOLDFAST_TOKEN, give --token, or run holdfast profile add", called(cmd))
	}
	if debug.SetMemoryLimit(-1) == math.MaxInt64 { // GOMEMLIMIT is not set
		debug.SetMemoryLimit(clientMemory)
	}
	c, err := gateway.New(gateway.Options{
		Endpoints: p.Endpoints, Pinning: p.Pinning, Console: p.Web, Token: p.Token, AccessKey: p.AccessKey, SecretKey: p.SecretKey,
		UserAgent: "holdfast/" + a.version,
	})
	if errors.Is(err, gateway.ErrOptions) {
		return nil, usagef("%s: %v", called(cmd), err)
	}
	return c, err
}

// s3Target names a bucket and an object, or a bucket and a prefix of keys. An empty key means the
// whole bucket.
type s3Target struct{ bucket, key string }

func (t s3Target) String() string { return s3Scheme + t.bucket + "/" + t.key }

// isS3 reports whether an argument names a bucket or an object, and not a local file.
func isS3(arg string) bool { return strings.HasPrefix(arg, s3Scheme) }

// parseS3 parses an argument of the form s3://BUCKET or s3://BUCKET/KEY. It does not decode
// percent-encoding in KEY.
func parseS3(cmd *cobra.Command, arg string) (s3Target, error) {
	rest, ok := strings.CutPrefix(arg, s3Scheme)
	bucket, key, _ := strings.Cut(rest, "/")
	switch {
	case !ok:
		return s3Target{}, usagef("%s: %q does not begin with s3:// (see %s --help)", called(cmd), arg, cmd.CommandPath())
	case bucket == "":
		return s3Target{}, usagef("%s: %q names no bucket", called(cmd), arg)
	case !utf8.ValidString(arg):
		return s3Target{}, usagef("%s: %q is not UTF-8", called(cmd), arg)
	}
	return s3Target{bucket, key}, nil
}

// parseObject parses an argument of the form s3://BUCKET/KEY. It returns a usageError if KEY is
// empty or ends with a slash.
func parseObject(cmd *cobra.Command, arg string) (s3Target, error) {
	t, err := parseS3(cmd, arg)
	if err == nil && (t.key == "" || strings.HasSuffix(t.key, "/")) {
		err = usagef("%s: %q names no object: the key is missing", called(cmd), arg)
	}
	return t, err
}

// below returns the target for the upload of file. If t has no key, or a key that ends with a
// slash, below appends the name of the file, as cp does with a folder. Otherwise it returns t.
func (t s3Target) below(file string) (s3Target, error) {
	if t.key != "" && !strings.HasSuffix(t.key, "/") {
		return t, nil
	}
	name := filepath.Base(file)
	if file == "-" || name == "." || name == ".." || name == string(filepath.Separator) {
		return t, fmt.Errorf("%s names no key, and %q gives none", t, file)
	}
	if !utf8.ValidString(name) {
		return t, fmt.Errorf("the name %q is not UTF-8, as keys are: give a key", name)
	}
	return s3Target{t.bucket, t.key + name}, nil
}

// clusterError returns errInterrupted if err is not nil and ctx has ended, and err otherwise.
func clusterError(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	return err
}
