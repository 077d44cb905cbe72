package accounts

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"golang.org/x/crypto/argon2"
)

// Cost of a password hash: the minimum that OWASP recommends for argon2id, because the servers
// are small. A hash contains its cost, so the cost of new hashes can be raised.
const (
	argonMemory = 19 << 10 // KiB
	argonPasses = 2
	argonLanes  = 1
	argonSalt   = 16 // bytes
	argonHash   = 32 // bytes
)

// Limits of passwords and of their hashes.
const (
	MinPassword = 8    // characters
	MaxPassword = 1024 // bytes
	// maxArgonMemory and maxArgonPasses limit the cost parameters that a stored hash may contain.
	maxArgonMemory = 256 << 10 // KiB
	maxArgonPasses = 16
)

// hashPassword returns the argon2id hash of a password in PHC string form:
// $argon2id$v=19$m=<KiB>,t=<passes>,p=<lanes>$<salt>$<hash>, both in base64
// without padding.
func (a *Accounts) hashPassword(ctx context.Context, password string) (string, error) {
	switch {
	case !utf8.ValidString(password):
		return "", state.Errorf(state.CodeInvalid, "the password is not valid UTF-8")
	case utf8.RuneCountInString(password) < MinPassword:
		return "", state.Errorf(state.CodeInvalid, "the password is shorter than %d characters", MinPassword)
	case len(password) > MaxPassword:
		return "", state.Errorf(state.CodeInvalid, "the password is longer than %d bytes", MaxPassword)
	}
	leave, err := a.hashSlots.hash(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	salt := make([]byte, argonSalt)
	if _, err := rand.Read(salt); err != nil {
		return "", fmt.Errorf("hash password: %w", err)
	}
	hash := argon2.IDKey([]byte(password), salt, argonPasses, argonMemory, argonLanes, argonHash)
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, argonMemory, argonPasses, argonLanes,
		base64.RawStdEncoding.EncodeToString(salt), base64.RawStdEncoding.EncodeToString(hash)), nil
}

// matches returns whether the password has the stored hash. If stored is empty, it takes the same
// time and returns false. It first waits for a slot in the queue in.
func (a *Accounts) matches(ctx context.Context, in line, stored, password string) (bool, error) {
	if len(password) > MaxPassword {
		return false, nil // no account has it
	}
	h, err := parseHash(stored)
	if err != nil {
		return false, err
	}
	leave, err := a.hashSlots.signIn(ctx, in)
	if err != nil {
		return false, err
	}
	defer leave()
	got := argon2.IDKey([]byte(password), h.salt, h.passes, h.memory, h.lanes, uint32(len(h.hash)))
	return subtle.ConstantTimeCompare(got, h.hash) == 1 && stored != "", nil
}

// argonParams are the parameters of one stored hash.
type argonParams struct {
	memory, passes uint32
	lanes          uint8
	salt, hash     []byte
}

// parseHash parses the output of hashPassword, with any cost parameters within the limits. For an
// empty text it returns a hash with the present cost that no password matches.
func parseHash(text string) (h argonParams, err error) {
	if text == "" {
		return argonParams{argonMemory, argonPasses, argonLanes, make([]byte, argonSalt), make([]byte, argonHash)}, nil
	}
	wrong := errors.New("the account's password hash is not readable")
	parts := strings.Split(text, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return h, wrong
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &h.memory, &h.passes, &h.lanes); err != nil {
		return h, wrong
	}
	if h.memory == 0 || h.memory > maxArgonMemory || h.passes == 0 || h.passes > maxArgonPasses || h.lanes == 0 {
		return h, wrong
	}
	salt, saltErr := base64.RawStdEncoding.DecodeString(parts[4])
	hash, hashErr := base64.RawStdEncoding.DecodeString(parts[5])
	if saltErr != nil || hashErr != nil || len(salt) < 8 || len(hash) < 16 {
		return h, wrong
	}
	h.salt, h.hash = salt, hash
	return h, nil
}
