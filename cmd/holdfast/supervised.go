package main

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// serviceStatus is the interval at which a supervised node checks whether its status has changed.
const serviceStatus = time.Second

// supervised tells the service manager, if one started this process, how the node is: the protocol is that of
// sd_notify(3), which systemd and some container runtimes speak. Without NOTIFY_SOCKET in the environment nothing is
// sent.
type supervised struct {
	logger *slog.Logger
	health atomic.Pointer[health] // of the node as it was started last
	failed sync.Once              // has logged that a message could not be sent
}

// serves tells that the node has opened and that its listeners answer. Systemd then calls the service started. A
// service that waited until the node is ready would wait for other nodes, which may be starting after it.
func (s *supervised) serves(h *health) {
	s.health.Store(h)
	s.tell(daemon.SdNotifyReady + "\n" + s.status())
}

// run tells the status of the node and answers the watchdog until ctx ends, and then that the node stops. The watchdog
// hears nothing while the check of the node hangs, so systemd ends a process whose locks are stuck.
func (s *supervised) run(ctx context.Context) {
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		s.logger.WarnContext(ctx, "the watchdog of the service is off", "err", err)
	}
	every := serviceStatus
	if watchdog > 0 {
		every = min(every, watchdog/2)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var told string
	var answered time.Time
	for {
		text := s.status()
		lines := text
		if watchdog > 0 && time.Since(answered) > watchdog/2-every { // half of its time, as sd_watchdog_enabled(3) recommends
			lines += "\n" + daemon.SdNotifyWatchdog
			answered = time.Now()
		}
		if lines != told {
			if !s.tell(lines) {
				return
			}
			told = text
		}
		select {
		case <-ctx.Done():
			s.tell(daemon.SdNotifyStopping + "\nSTATUS=stopping")
			return
		case <-tick.C:
		}
	}
}

// status returns the line of the protocol that says whether the node is ready, or why not.
func (s *supervised) status() string {
	err := errStarting
	if h := s.health.Load(); h != nil {
		err = h.Ready(context.Background()) // reads what the node knows
	}
	if err != nil {
		return "STATUS=not ready: " + oneLine(err.Error())
	}
	return "STATUS=ready"
}

// tell sends lines of the protocol and reports whether there is a service manager that may take more.
func (s *supervised) tell(lines string) bool {
	sent, err := daemon.SdNotify(false, lines)
	if err != nil {
		s.failed.Do(func() { s.logger.Warn("the service manager does not hear how the node is", "err", err) })
	}
	return sent || err != nil
}
