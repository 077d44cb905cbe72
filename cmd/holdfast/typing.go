//go:build unix

package main

import (
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// stopWithin is the longest time that typist waits until a signal has stopped this process.
const stopWithin = time.Second

// typist hides the text that a user types at the prompts of a command. The zero value is ready
// for use; the owner closes it.
type typist struct {
	signals chan os.Signal // nil before the first prompt
	ended   chan struct{}  // closed when the goroutine that reads signals ends

	// mu guards unseen. It is held while this process is stopped, so that only one goroutine
	// changes the terminal at a time.
	mu     sync.Mutex
	unseen *unseen // nil if no input is hidden
}

// unseen is a terminal that does not show the text that a user types.
type unseen struct {
	fd          int
	was, hidden *unix.Termios
	prompt      func()
}

// hide stops a terminal from showing what the user types until restore is called. The settings
// of the terminal are changed when hide returns, and restored when restore returns, so an
// interruption in between leaves the terminal as it was. Before Ctrl-Z or Ctrl-\ takes effect,
// the terminal is restored too. hide calls prompt after the input is hidden. prompt is called
// again whenever a shell continues the stopped process, because the terminal has discarded the
// typed text.
func (t *typist) hide(terminal *os.File, prompt func()) (restore func() error, err error) {
	t.watch()
	fd := int(terminal.Fd())
	was, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return nil, err
	}
	hidden := *was
	hidden.Lflag &^= unix.ECHO
	hidden.Lflag |= unix.ICANON | unix.ISIG
	hidden.Iflag |= unix.ICRNL
	u := &unseen{fd, was, &hidden, prompt}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := u.set(u.hidden); err != nil {
		return nil, err
	}
	t.unseen = u
	prompt()
	return func() error {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.unseen = nil
		return u.set(u.was)
	}, nil
}

func (u *unseen) set(to *unix.Termios) error { return unix.IoctlSetTermios(u.fd, setTermios, to) }

// watch passes the signals that stop this process, or end it with a dump, to undergo. It
// continues after the prompt, because the Go runtime drops each SIGTSTP once the process has
// asked for that signal.
func (t *typist) watch() {
	if t.signals != nil {
		return
	}
	t.signals, t.ended = make(chan os.Signal, 8), make(chan struct{}) // more than a person types in between
	signal.Notify(t.signals, unix.SIGTSTP, unix.SIGQUIT, unix.SIGCONT)
	go func() {
		defer close(t.ended)
		for s := range t.signals {
			t.undergo(s)
		}
	}()
}

// undergo restores the terminal and lets a signal take effect. When this process continues,
// undergo hides the input again.
func (t *typist) undergo(s os.Signal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unseen != nil && s != unix.SIGCONT {
		_ = t.unseen.set(t.unseen.was) // else the person has to type reset
	}
	switch s {
	case unix.SIGQUIT:
		signal.Reset(unix.SIGQUIT)
		t.send(unix.SIGQUIT)
	case unix.SIGTSTP:
		if session, err := unix.Getsid(0); err == nil && session != unix.Getpgrp() { // else no shell would let it go on
			t.send(unix.SIGSTOP)
		}
	}
	if t.unseen != nil {
		_ = t.unseen.set(t.unseen.hidden) // in the background this stops the process once more
		t.unseen.prompt()
	}
}

// send sends this process a signal that stops or ends it. It returns when the process
// continues.
func (t *typist) send(s unix.Signal) {
	if err := unix.Kill(unix.Getpid(), s); err != nil {
		return
	}
	late := time.NewTimer(stopWithin)
	defer late.Stop()
	for {
		select {
		case next, open := <-t.signals:
			if next == unix.SIGCONT || !open {
				return
			}
		case <-late.C:
			return
		}
	}
}

// close stops the goroutine that watch started.
func (t *typist) close() {
	if t.signals == nil {
		return
	}
	signal.Stop(t.signals)
	close(t.signals)
	<-t.ended
}
