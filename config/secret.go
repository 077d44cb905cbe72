package config

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// Bounds of a cluster secret.
const (
	maxSecretFile  = 4096 // bytes of a file that holds one
	minSecretBytes = 16   // of the secret itself
)

// GivenSecret returns the cluster secret from Cluster.SecretFile or Cluster.Secret, or nil if
// neither is set. If the file is unreadable or has no secret, it returns an *Error that names
// the file. Load does not read the file, because a member does not need it.
func (c Config) GivenSecret() ([]byte, error) {
	path := c.Cluster.SecretFile
	if path == "" {
		if c.Cluster.Secret == "" {
			return nil, nil
		}
		return ParseSecret(c.Cluster.Secret)
	}
	raw, err := readBounded(path, maxSecretFile)
	if err == nil {
		var secret []byte
		if secret, err = ParseSecret(string(raw)); err == nil {
			return secret, nil
		}
		err = fmt.Errorf("%s: %w", path, err)
	}
	var from source
	if c.secretFrom != nil {
		from = *c.secretFrom
	}
	return nil, asError([]Problem{{Key: "cluster.secret_file", Source: from.name, Detail: err.Error(), flag: from.flag}})
}

// ParseSecret parses a cluster secret in the form of files and of HOLDFAST_SECRET:
// hexadecimal on one line, with or without white space around it.
func ParseSecret(text string) ([]byte, error) {
	secret, err := hex.DecodeString(strings.TrimSpace(text))
	if err != nil || len(secret) < minSecretBytes {
		return nil, fmt.Errorf("the cluster secret is not %d or more bytes in hexadecimal", minSecretBytes)
	}
	return secret, nil
}

// secretText accepts a cluster secret, or none.
func secretText(field any) error {
	text := *field.(*string)
	if text == "" {
		return nil
	}
	if _, err := ParseSecret(text); err != nil {
		return &openError{err}
	}
	return nil
}
