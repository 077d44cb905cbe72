package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// beJob has the test binary be a process at a terminal: its value says which, asShell or
// asCommand.
const (
	beJob     = "TEST_BINARY_IS_A_JOB"
	asShell   = "shell"
	asCommand = "command"
	// jobOutput is the file that both outputs of the job of a shell go to; the terminal if
	// it is not set.
	jobOutput = "TEST_JOB_OUTPUT"
)

// asJob returns what the process does; it returns its exit code.
func asJob() int {
	if os.Getenv(beJob) == asShell {
		return runJob()
	}
	a := &app{
		version: "v1.2.3", environ: os.Environ(), stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		connect: func(string) operator { return manyThings() },
	}
	return a.execute(context.Background(), os.Args[1:])
}

// The files of a shell for the test that runs it.
const (
	reports  = 3 // a line for each stop of the job and for its end
	commands = 4 // a line for each time that it is to go on
)

// runJob does what an interactive shell does: it has a command in the foreground of the
// terminal, takes the terminal back when that stops, and gives it to it again.
func runJob() int {
	report, command := os.NewFile(reports, "reports"), bufio.NewReader(os.NewFile(commands, "commands"))
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), beJob+"="+asCommand)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if path := os.Getenv(jobOutput); path != "" {
		f, err := os.Create(path)
		if err != nil {
			return exitUsage
		}
		cmd.Stdout, cmd.Stderr = f, f
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Foreground: true, Ctty: 0}
	if err := cmd.Start(); err != nil {
		return exitUsage
	}
	signal.Ignore(unix.SIGTTOU) // not before: the command would have it ignored as well
	job := cmd.Process.Pid
	for {
		var status unix.WaitStatus
		if _, err := unix.Wait4(job, &status, unix.WUNTRACED, nil); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return exitUsage
		}
		if !status.Stopped() {
			fmt.Fprintln(report, "ended", status.ExitStatus())
			return exitOK
		}
		if unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, unix.Getpgrp()) != nil {
			return exitUsage
		}
		fmt.Fprintln(report, "stopped", status.StopSignal())
		if _, err := command.ReadString('\n'); err != nil {
			return exitFailure
		}
		if unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, job) != nil || unix.Kill(-job, unix.SIGCONT) != nil {
			return exitUsage
		}
	}
}

// job is a command that a shell runs at a terminal.
type job struct {
	typing
	reports  *bufio.Reader
	commands *os.File
}

// startJob runs a command of a node with manyThings. Both of its outputs go to the file
// output, or to the terminal where that is "".
func startJob(t *testing.T, args, output string) *job {
	t.Helper()
	person, terminal := newTerminal(t)
	report, reporting, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	commanded, command, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], strings.Fields(args)...)
	cmd.Env = append(os.Environ(), beJob+"="+asShell, jobOutput+"="+output)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.ExtraFiles = []*os.File{reporting, commanded}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Close()
		_ = cmd.Process.Kill() // its terminal goes, and with it the job
		_ = cmd.Wait()
		_ = report.Close()
	})
	if err := errors.Join(reporting.Close(), commanded.Close(), report.SetReadDeadline(time.Now().Add(2*time.Minute))); err != nil {
		t.Fatal(err)
	}
	return &job{typing{t: t, args: args, person: person, terminal: terminal}, bufio.NewReader(report), command}
}

// reported waits for what the shell says next of the job.
func (j *job) reported(want string) {
	j.t.Helper()
	if line, err := j.reports.ReadString('\n'); err != nil || strings.TrimSpace(line) != want {
		j.t.Fatalf("%s: the shell says %q, %v; want %q", j.args, line, err, want)
	}
}

// A password prompt that Ctrl-Z stops gives the terminal back with its echo, and asks again, hidden, when it goes on.
func TestAStoppedPromptLeavesTheTerminalAsItWas(t *testing.T) {
	for _, tc := range passwordCommands {
		j := startJob(t, tc.args, "")
		for _, prompt := range []string{tc.prompt, promptAgain} {
			j.prompted(prompt)
			for range 2 {
				j.types("half of it\x1a")
				j.reported("stopped " + unix.SIGSTOP.String())
				if j.hidden() {
					t.Errorf("%s: stopped at %q it leaves a terminal that hides what is typed", tc.args, prompt)
				}
				if _, err := j.commands.WriteString("go on\n"); err != nil {
					t.Fatal(err)
				}
				j.prompted(prompt) // again, and hidden
			}
			j.types("typed words\n")
		}
		j.reported("ended 0")
		if j.hidden() {
			t.Errorf("%s: at its end the terminal hides what is typed", tc.args)
		}
	}
}

// A password prompt that Ctrl-\ ends leaves the terminal with its echo. Ctrl-\ ends a program of Go with code 2 and
// the stacks of its goroutines.
func TestAPromptThatIsQuitLeavesTheTerminalAsItWas(t *testing.T) {
	for _, tc := range passwordCommands {
		j := startJob(t, tc.args, "")
		j.prompted(tc.prompt)
		j.types("typ\x1c")
		j.seen("SIGQUIT")
		j.reported("ended 2")
		if j.hidden() {
			t.Errorf("%s: the terminal hides what is typed", tc.args)
		}
	}
}

// A question and a password prompt appear on the terminal when both outputs of the command are redirected.
func TestAQuestionReachesThePersonPastRedirections(t *testing.T) {
	for _, tc := range removals {
		for answer, code := range map[string]int{"n\n": exitFailure, "y\n": exitOK} {
			output := filepath.Join(t.TempDir(), "output")
			j := startJob(t, tc.args, output)
			if shown := j.seen("[y/N] "); !strings.Contains(shown, tc.asks) {
				t.Errorf("%s shows %q", tc.args, shown)
			}
			j.types(answer)
			j.reported(fmt.Sprint("ended ", code))
			if got, err := os.ReadFile(output); err != nil || strings.Contains(string(got), "nothing was changed") != (code == exitFailure) {
				t.Errorf("%s answered %q: %q, %v", tc.args, answer, got, err)
			}
		}
	}
	output := filepath.Join(t.TempDir(), "output")
	j := startJob(t, "user passwd a@b", output)
	j.prompted("New password: ")
	j.types("typed words\n")
	j.prompted(promptAgain)
	j.types("typed words\n")
	j.reported("ended 0")
}

// A command that takes something away fails and names --yes if no terminal can show its question. It succeeds with
// --yes.
func TestAQuestionThatNobodySeesChangesNothing(t *testing.T) {
	_, terminal := newTerminal(t)
	for _, tc := range removals {
		for _, yes := range []bool{false, true} {
			args := strings.Fields(tc.args)
			if yes {
				args = append(args, "--yes")
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
			cmd.Env = append(os.Environ(), beJob+"="+asCommand)
			cmd.Stdin = terminal
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			out, err := cmd.CombinedOutput()
			refused := strings.Contains(string(out), "nothing was changed: no terminal can show the question; give --yes")
			if (err == nil) != yes || refused == yes {
				t.Errorf("%s, --yes %t: %v, %q", tc.args, yes, err, out)
			}
		}
	}
}
