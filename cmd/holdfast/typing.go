//go:build unix

package main

import (
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// stopWithin is how long a signal that stops this process may take to do so.
const stopWithin = time.Second

// typist hides what is typed at the prompts of a command. The zero value is ready; the owner
// closes it.
type typist struct {
	signals chan os.Signal // nil before the first prompt
	ended   chan struct{}  // closed at the end of what reads them

	// mu guards unseen. It is held while this process is stopped, so that the terminal is
	// changed by one at a time.
	mu     sync.Mutex
	unseen *unseen // nil where nothing is hidden
}

// unseen is a terminal that does not show what is typed.
type unseen struct {
	fd          int
	was, hidden *unix.Termios
	prompt      func()
}

// hide has a terminal not show what is typed until restore is called. Both are done when they
// return, so that who is interrupted in between leaves the terminal as it was; Ctrl-Z and
// Ctrl-\ take effect after the terminal is as it was too. It calls prompt when nothing is shown
// any more: once, and again whenever a shell lets the process go on, since the terminal has then
// dropped what was typed.
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

// watch has signals that stop this process, or end it with a dump, go through undergo. It goes
// on behind the prompt: the runtime of Go drops each SIGTSTP from the first time on that
// somebody wants to know of one.
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

// undergo has a signal take effect, with the terminal as it was, and hides again what is typed
// when this process goes on.
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

// send sends this process a signal that stops or ends it, and returns when it goes on.
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

// close ends what watch began.
func (t *typist) close() {
	if t.signals == nil {
		return
	}
	signal.Stop(t.signals)
	close(t.signals)
	<-t.ended
}
