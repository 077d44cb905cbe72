package kv

import (
	"fmt"
	"log/slog"
	"os"
)

// PebbleLogger writes Pebble's messages to Log. Fatal is called with the message with which
// Pebble ends the process, and must not return; nil ends the process with status 1.
type PebbleLogger struct {
	Log   *slog.Logger
	Fatal func(message string)
}

// Infof implements pebble.Logger.
func (l PebbleLogger) Infof(format string, args ...any) {
	l.Log.Debug("pebble", "message", fmt.Sprintf(format, args...))
}

// Errorf implements pebble.Logger.
func (l PebbleLogger) Errorf(format string, args ...any) {
	l.Log.Error("pebble", "message", fmt.Sprintf(format, args...))
}

// Fatalf implements pebble.Logger.
func (l PebbleLogger) Fatalf(format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	l.Log.Error("store has failed: writes may not be durable", "message", message)
	if l.Fatal != nil {
		l.Fatal(message)
	}
	os.Exit(1)
}
