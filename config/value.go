package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes. ParseSize describes its text form.
type Size int64

// Units of Size.
const (
	KiB Size = 1 << (10 * (iota + 1))
	MiB
	GiB
	TiB
)

// String formats s with the largest unit that divides it without a remainder, such as 5GiB.
func (s Size) String() string {
	for _, unit := range []struct {
		size Size
		name string
	}{{TiB, "TiB"}, {GiB, "GiB"}, {MiB, "MiB"}, {KiB, "KiB"}} {
		if s != 0 && s%unit.size == 0 {
			return strconv.FormatInt(int64(s/unit.size), 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// sizeUnits are the units that ParseSize accepts. B is the last one, because ParseSize uses the
// first unit with which the text ends.
var sizeUnits = []struct {
	name string
	size Size
}{
	{"KiB", KiB},
	{"MiB", MiB},
	{"GiB", GiB},
	{"TiB", TiB},
	{"kB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"B", 1},
}

// ParseSize parses a size such as 10GiB or 500MB. A size is a whole number and a unit. Units are
// powers of 1000 (kB, MB, GB, TB) or 1024 (KiB, MiB, GiB, TiB) in letters of any case, or B.
// Without a unit the number is in bytes. Spaces around number and unit are ignored.
func ParseSize(text string) (Size, error) {
	unit := Size(1)
	number := strings.TrimSpace(text)
	for _, u := range sizeUnits {
		if at := len(number) - len(u.name); at >= 0 && strings.EqualFold(number[at:], u.name) {
			number, unit = number[:at], u.size
			break
		}
	}
	n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 63)
	if err != nil || n > math.MaxInt64/uint64(unit) {
		return 0, fmt.Errorf("%q is not a size such as 10GiB, 500MB or 1048576", text)
	}
	return Size(n) * unit, nil
}

// parseDuration parses a duration in the syntax of Go, such as 1h30m.
func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a time such as 10m or 1h30m", text)
	}
	return d, nil
}

// AutoDuration is a duration that the program can choose itself. 0, written as "auto", means that
// the program measures the suitable duration.
type AutoDuration time.Duration

const auto = "auto"

// String formats d for the settings file: "auto" for 0, and the text of FormatDuration otherwise.
func (d AutoDuration) String() string {
	if d == 0 {
		return auto
	}
	return FormatDuration(time.Duration(d))
}

func parseAuto(text string) (AutoDuration, error) {
	if text == auto {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d == 0 {
		return 0, fmt.Errorf("%q is neither auto nor a time such as 500ms", text)
	}
	return AutoDuration(d), nil
}

// fromText parses text from the environment or from a flag by the type of *field, and stores the
// value there. A list is split at commas. Empty text is an empty list or an empty string; for a
// number, a size or a time it is an error.
func fromText(field any, text string) (err error) {
	switch v := field.(type) {
	case *string:
		*v = text
	case *[]string:
		*v = nil
		if text != "" {
			*v = strings.Split(text, ",")
		}
		for i, entry := range *v {
			(*v)[i] = strings.TrimSpace(entry)
		}
	case *bool:
		if *v, err = strconv.ParseBool(text); err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
	case *int:
		if *v, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
	case *time.Duration:
		*v, err = parseDuration(text)
	case *AutoDuration:
		*v, err = parseAuto(text)
	case *Size:
		*v, err = ParseSize(text)
	case *[]OpenID:
		return errors.New("providers are set in config.toml only: begin each with [[console.oidc]]")
	default:
		return fmt.Errorf("no text form for %T", field)
	}
	return err
}

// fromFile stores value, which the TOML parser returned, in *field. It returns an error if value
// has the wrong TOML type for *field: for example, it does not accept a number in quotes, or a
// string for a list.
func fromFile(field, value any) error {
	switch v := field.(type) {
	case *string:
		text, ok := value.(string)
		if !ok {
			return fmt.Errorf("%v must be a string in quotes", value)
		}
		*v = text
	case *[]string:
		list, ok := value.([]any)
		if !ok {
			return fmt.Errorf("%v must be a list of strings in brackets", value)
		}
		*v = make([]string, 0, len(list))
		for _, entry := range list {
			text, ok := entry.(string)
			if !ok {
				return fmt.Errorf("%v must be a string in quotes", entry)
			}
			*v = append(*v, text)
		}
	case *bool:
		b, ok := value.(bool)
		if !ok {
			return fmt.Errorf("%v must be true or false without quotes", value)
		}
		*v = b
	case *int:
		n, ok := value.(int64)
		if !ok || int64(int(n)) != n {
			return fmt.Errorf("%v must be a whole number without quotes", value)
		}
		*v = int(n)
	case *time.Duration:
		text, ok := value.(string)
		if !ok {
			return fmt.Errorf("%v must be a time in quotes such as \"10m\"", value)
		}
		return fromText(v, text)
	case *AutoDuration:
		text, ok := value.(string)
		if !ok {
			return fmt.Errorf("%v must be \"auto\" or a time in quotes such as \"500ms\"", value)
		}
		return fromText(v, text)
	case *Size:
		switch n := value.(type) {
		case string:
			return fromText(v, n)
		case int64:
			*v = Size(n)
		default:
			return fmt.Errorf("%v must be a size such as \"256MiB\"", value)
		}
	case *[]OpenID:
		all, err := providersFromFile(value)
		if err != nil {
			return err
		}
		*v = all
	default:
		return fmt.Errorf("no form in a file for %T", field)
	}
	return nil
}

// format returns the value of *field in the syntax of TOML, or "" for an unknown type.
func format(field any) string {
	switch v := field.(type) {
	case *string:
		return strconv.Quote(*v)
	case *[]string:
		quoted := make([]string, len(*v))
		for i, entry := range *v {
			quoted[i] = strconv.Quote(entry)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	case *bool:
		return strconv.FormatBool(*v)
	case *int:
		return strconv.Itoa(*v)
	case *time.Duration:
		return strconv.Quote(FormatDuration(*v))
	case *AutoDuration:
		return strconv.Quote(v.String())
	case *Size:
		return strconv.Quote(v.String())
	case *[]OpenID:
		return formatProviders(*v)
	}
	return ""
}

// FormatDuration formats d like time.Duration.String, without trailing units that are zero: 10m
// and not 10m0s.
func FormatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
