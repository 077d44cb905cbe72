package activity

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// A Log keeps the newest records from level info on, whatever the level of the handler behind it, which gets only
// what its level permits.
func TestTheNewestRecordsAreKept(t *testing.T) {
	var out bytes.Buffer
	var l Log
	log := slog.New(l.Handler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn})))
	log.Debug("not kept")
	log.Info("kept", "n", 1)
	log.With("on", "n1").WithGroup("disk").Warn("passed on too", "err", errors.New("full"), slog.Group("of", "free", 3))
	if text := out.String(); strings.Contains(text, "kept") || !strings.Contains(text, "passed on too") || !strings.Contains(text, "disk.of.free=3") {
		t.Errorf("passed on is %q", text)
	}
	got := l.Newest()
	if len(got) != 2 || got[0].Message != "passed on too" || got[1].Message != "kept" || got[0].Level != slog.LevelWarn || got[0].Time.IsZero() {
		t.Fatalf("%+v", got)
	}
	if want := []Attr{{"on", "n1"}, {"disk.err", "full"}, {"disk.of.free", "3"}}; !slices.Equal(got[0].Attrs, want) {
		t.Errorf("the attributes are %v, not %v", got[0].Attrs, want)
	}
}

// A Log keeps at most maxRecords records, with at most maxAttrs attributes each, and cuts long texts at maxText.
func TestRecordsAreBounded(t *testing.T) {
	var l Log
	log := slog.New(l.Handler(slog.DiscardHandler))
	for i := range maxRecords + 10 {
		log.Info(fmt.Sprint(i))
	}
	got := l.Newest()
	if len(got) != maxRecords || got[0].Message != fmt.Sprint(maxRecords+9) || got[maxRecords-1].Message != "10" {
		t.Errorf("%d records from %s to %s", len(got), got[0].Message, got[len(got)-1].Message)
	}
	var many []any
	for i := range 2 * maxAttrs {
		many = append(many, fmt.Sprint(i), strings.Repeat("ä", maxText))
	}
	log.Info("a"+strings.Repeat("ä", maxText), many...)
	r := l.Newest()[0]
	if len(r.Attrs) != maxAttrs || len(r.Message) > maxText+len("…") || !utf8.ValidString(r.Message) || len(r.Attrs[0].Value) > maxText+len("…") {
		t.Errorf("%d attributes, a message of %d bytes and a value of %d", len(r.Attrs), len(r.Message), len(r.Attrs[0].Value))
	}
	if (*Log)(nil).Newest() != nil {
		t.Error("a log that is not there has records")
	}
}
