package kv

import (
	"fmt"
	"log/slog"
	"os"
)

// PebbleLogger is a pebble.Logger that writes to Log. When Pebble wants to end the process,
// PebbleLogger calls Fatal with Pebble's message. Fatal must not return; if it is nil, PebbleLogger
// ends the process with status 1.
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
