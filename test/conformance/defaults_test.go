//go:build conformance

package conformance

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// What honest clients send to a gateway on its defaults.
const (
	honestClients = 32
	honestFor     = 5 * time.Second
	honestFiles   = 2_500 // of 1 KiB, in 50 folders; eight times as many in the long form
)

// TestDefaultsRefuseNoHonestClient promises that no client gets a 503 of the default rates for storing small objects
// as fast as the cluster takes them. The load is that of 32 clients, and of rclone, aws and restic with many small
// files.
func TestDefaultsRefuseNoHonestClient(t *testing.T) {
	longForm(t)
	t.Parallel() // a cluster of its own
	g := newGateway(t, harness.Options{DefaultRates: true})
	s3, many := g.node.S3URL(), honestFiles
	if *longFlag {
		many *= 8
	}
	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: honestClients}}
	defer web.CloseIdleConnections()
	t.Run("32 clients", func(t *testing.T) {
		send := func(ctx context.Context, method, path string, body []byte) (int, error) {
			r, err := http.NewRequestWithContext(ctx, method, s3+path, bytes.NewReader(body))
			if err != nil {
				return 0, err
			}
			r.Header.Set("Authorization", "Bearer "+g.key.Token)
			answer, err := web.Do(r)
			if err != nil {
				return 0, err
			}
			_, err = io.Copy(io.Discard, answer.Body)
			return answer.StatusCode, errors.Join(err, answer.Body.Close())
		}
		if status, err := send(t.Context(), http.MethodPut, "/honest", nil); status != http.StatusOK {
			t.Fatal(status, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), honestFor)
		defer cancel()
		var clients errgroup.Group
		var stored atomic.Int64
		for client := range honestClients {
			clients.Go(func() error {
				body := make([]byte, 1024)
				for turn := 0; ctx.Err() == nil; turn++ {
					rand.Read(body)
					status, err := send(t.Context(), http.MethodPut, "/honest/"+strconv.Itoa(client)+"/"+strconv.Itoa(turn), body)
					if err != nil || status != http.StatusOK {
						return fmt.Errorf("object %d of client %d: %d, %w", turn, client, status, err)
					}
					stored.Add(1)
				}
				return nil
			})
		}
		if err := clients.Wait(); err != nil {
			t.Error(err)
		}
		t.Logf("%d objects of 1 KiB were stored in %s", stored.Load(), honestFor)
	})
	files := func(t *testing.T, x *tool, many int) {
		t.Helper()
		body := make([]byte, 1024)
		for i := range many {
			rand.Read(body)
			path := filepath.Join(x.home, "many", strconv.Itoa(i%50), strconv.Itoa(i))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, body, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Run("rclone", func(t *testing.T) {
		x := g.tool(t,
			"RCLONE_CONFIG_H_TYPE=s3", "RCLONE_CONFIG_H_PROVIDER=Other", "RCLONE_CONFIG_H_ENDPOINT="+s3, "RCLONE_CONFIG_H_ENV_AUTH=true")
		files(t, x, many)
		x.run("rclone", "mkdir", "h:rclone-many")
		// One try of everything: a single 503 is an error.
		x.run("rclone", "copy", "--transfers", "32", "--checkers", "32", "--retries", "1", "--low-level-retries", "1", "many", "h:rclone-many")
		x.run("rclone", "check", "--one-way", "many", "h:rclone-many")
	})
	t.Run("aws", func(t *testing.T) {
		x := g.tool(t, "AWS_PAGER=", "AWS_MAX_ATTEMPTS=1")
		files(t, x, many/5) // its program is slow
		x.run("/usr/bin/aws", "--endpoint-url", s3, "s3", "mb", "s3://aws-many")
		x.run("/usr/bin/aws", "--endpoint-url", s3, "s3", "sync", "--only-show-errors", "many", "s3://aws-many")
	})
	t.Run("restic", func(t *testing.T) {
		x := g.tool(t, "RESTIC_REPOSITORY=s3:"+s3+"/restic-many", "RESTIC_PASSWORD=correct horse")
		files(t, x, many)
		x.run("restic", "init")
		x.run("restic", "backup", "many")
		x.run("restic", "check")
	})
	for _, n := range g.cluster.Nodes {
		for sample, value := range n.Metrics() {
			if strings.HasPrefix(sample, `holdfast_http_requests_total{api="s3",`) && strings.Contains(sample, `code="503"`) && value > 0 {
				t.Errorf("node %s: %s %v", n.Name, sample, value)
			}
		}
	}
}
