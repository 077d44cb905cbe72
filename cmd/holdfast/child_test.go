package main

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A Ctrl-C that ended a process just after its fork ends the demo as an interruption, even if the process is seen to have
// ended first. A process that SIGINT ended without a Ctrl-C has failed.
func TestAProcessEndedByCtrlCHasNotFailed(t *testing.T) {
	for _, interrupted := range []bool{true, false} {
		c, err := startChild("node1", filepath.Join(t.TempDir(), "log"), exec.Command("sh", "-c", "echo starting; kill -INT $$"))
		if err != nil {
			t.Fatal(err)
		}
		<-c.done
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		err = until(ctx, demoPoll, c, func(context.Context) (bool, error) {
			if interrupted {
				go cancel()
			}
			return false, nil
		})
		switch {
		case interrupted && (!errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "node1")):
			t.Errorf("after Ctrl-C: %v", err)
		case !interrupted && (errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "node1 ended: signal: interrupt; its last line: starting")):
			t.Errorf("without Ctrl-C: %v", err)
		}
	}
}
