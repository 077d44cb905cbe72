//go:build unix

package main

import (
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// stopWithin is the longest time that send waits for a signal to stop this process.
const stopWithin = time.Second

// typist hides what a user types at the prompts of a command. The zero value is ready for use.
// The owner calls close at the end.
type typist struct {
	signals chan os.Signal // nil before the first prompt
	ended   chan struct{}  // closed when the goroutine that reads signals ends

	// mu guards unseen and the settings of the terminal. A goroutine also holds it while a signal
	// stops this process.
	mu     sync.Mutex
	unseen *unseen // nil if no input is hidden
}

// unseen is a terminal that currently does not echo what the user types.
type unseen struct {
	fd          int
	was, hidden *unix.Termios // settings before hide, and settings without echo
	prompt      func()        // prints the prompt
}

// hide turns off the echo of a terminal and then calls prompt. The caller calls restore to turn
// the echo on again. Both change the terminal before they return, so the caller can rely on the
// state even if a signal arrives. Before Ctrl-Z stops this process, or Ctrl-\ ends it, the typist
// restores the terminal for the shell. When the shell continues this process, the typist turns
// off the echo and calls prompt again, because the terminal has discarded the typed text.
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

// watch starts a goroutine that passes SIGTSTP, SIGQUIT and SIGCONT to undergo. The goroutine
// runs until close, also after the prompt: once a process has asked for SIGTSTP, the Go runtime
// no longer stops the process on that signal.
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

// undergo handles a signal that this process has received. It restores the terminal, and then
// lets the signal stop or end this process. When this process continues, undergo hides the input
// and shows the prompt again.
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

// send sends this process the signal s, which stops or ends it. It returns when the process
// continues, or after stopWithin if the signal has not stopped it.
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
