package seal

import (
	"encoding/json"
	"fmt"

	"golang.org/x/crypto/argon2"
)

// Cost are the argon2id parameters, which determine the work for one attempt at a passphrase.
type Cost struct {
	Time    uint32 // passes
	Memory  uint32 // KiB
	Threads uint8
}

// DefaultCost is the second recommendation of RFC 9106: three passes over 64 MiB in four lanes.
func DefaultCost() Cost { return Cost{Time: 3, Memory: 64 << 10, Threads: 4} }

// Limits and constants of identity files. The upper bounds of the cost prevent a file that takes hours
// or gigabytes to open. The lower bounds reject a file whose passphrase is cheap to guess; the lowest
// memory is the OWASP recommendation for low-memory machines. Memory is in KiB.
const (
	maxTime, maxMemory, maxThreads = 64, 1 << 20, 16
	minMemory                      = 7 << 10
	saltSize                       = 16
	maxIdentityFile                = 16 << 10
	identityVersion                = 1
	identityKDF                    = "argon2id"
)

func (c Cost) check() error {
	if c.Time < 1 || c.Time > maxTime || c.Memory < minMemory || c.Memory > maxMemory || c.Threads < 1 || c.Threads > maxThreads {
		return fmt.Errorf("%w: %d passes over %d KiB by %d threads", ErrCost, c.Time, c.Memory, c.Threads)
	}
	return nil
}

// identityFile has all members of an identity file except the nonce and the ciphertext. Its JSON
// is the additional authenticated data of the ciphertext.
type identityFile struct {
	Version  int    `json:"version"`
	Identity string `json:"identity"` // share identity, which is public
	KDF      string `json:"kdf"`
	Time     uint32 `json:"time"`
	Memory   uint32 `json:"memory_kib"`
	Threads  uint8  `json:"threads"`
	Salt     string `json:"salt"`
	Cipher   string `json:"cipher"`
}

func (f identityFile) key(passphrase, salt []byte) []byte {
	return argon2.IDKey(passphrase, salt, f.Time, f.Memory, f.Threads, keySize)
}

// Seal encrypts the identity under a passphrase and returns the content of an identity file. The
// caller should write it with mode 0600. The error is [ErrCost], or [ErrPassphrase] if the
// passphrase is empty.
func (id *Identity) Seal(passphrase []byte, cost Cost) ([]byte, error) {
	if err := cost.check(); err != nil {
		return nil, err
	}
	if len(passphrase) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrPassphrase)
	}
	s, err := id.secrets()
	if err != nil {
		return nil, err
	}
	plain, err := json.Marshal(map[string]string{
		"encryption_key": encode64(s.classic[:]), "hybrid_key": encode64(s.hybrid[:]),
		"signing_key": encode64(s.signing[:]), "path_secret": encode64(s.path[:]),
	})
	if err != nil {
		return nil, err
	}
	salt, nonce := random(saltSize), random(nonceSize)
	head := identityFile{
		Version: identityVersion, Identity: id.Public().String(), KDF: identityKDF,
		Time: cost.Time, Memory: cost.Memory, Threads: cost.Threads, Salt: encode64(salt), Cipher: algorithm,
	}
	additional, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	return json.MarshalIndent(struct {
		identityFile
		Nonce      string `json:"nonce"`
		Ciphertext string `json:"ciphertext"`
	}{head, encode64(nonce), encode64(newGCM(head.key(passphrase, salt)).Seal(nil, nonce, plain, additional))}, "", "  ")
}

// OpenIdentity decrypts an identity file that [Identity.Seal] returned. The error is
// [ErrIdentity], [ErrVersion], [ErrAlgorithm], [ErrCost] or [ErrPassphrase].
func OpenIdentity(file, passphrase []byte) (*Identity, error) {
	if len(file) > maxIdentityFile {
		return nil, fmt.Errorf("%w: file of %d bytes", ErrTooLarge, len(file))
	}
	f, err := parseFields(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	head, err := parseIdentityFile(f)
	if err != nil {
		return nil, err
	}
	salt, err := f.bytes("salt", saltSize)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	nonce, err := f.bytes("nonce", nonceSize)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	ciphertext, err := f.bytes("ciphertext", 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	additional, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	plain, err := newGCM(head.key(passphrase, salt)).Open(nil, nonce, ciphertext, additional)
	if err != nil {
		return nil, ErrPassphrase
	}
	id, err := parseSecrets(plain)
	if err == nil && id.Public().String() != head.Identity {
		err = fmt.Errorf("%w: keys are not those of %s", ErrIdentity, head.Identity)
	}
	return id, err
}

func parseIdentityFile(f fields) (head identityFile, err error) {
	version, err := f.integer("version")
	if err != nil {
		return head, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	if version != identityVersion {
		return head, fmt.Errorf("%w: identity file %d", ErrVersion, version)
	}
	head.Version = identityVersion
	for name, to := range map[string]*string{"identity": &head.Identity, "kdf": &head.KDF, "salt": &head.Salt, "cipher": &head.Cipher} {
		if *to, err = f.text(name); err != nil {
			return head, fmt.Errorf("%w: %w", ErrIdentity, err)
		}
	}
	if head.KDF != identityKDF || head.Cipher != algorithm {
		return head, fmt.Errorf("%w: %.32q with %.32q", ErrAlgorithm, head.KDF, head.Cipher)
	}
	numbers := map[string]int64{"time": 0, "memory_kib": 0, "threads": 0}
	for name := range numbers {
		n, err := f.integer(name)
		if err != nil {
			return head, fmt.Errorf("%w: %w", ErrIdentity, err)
		}
		if n < 0 || n > maxMemory {
			return head, fmt.Errorf("%w: %s is %d", ErrCost, name, n)
		}
		numbers[name] = n
	}
	if numbers["threads"] > maxThreads {
		return head, fmt.Errorf("%w: %d threads", ErrCost, numbers["threads"])
	}
	head.Time, head.Memory, head.Threads = uint32(numbers["time"]), uint32(numbers["memory_kib"]), uint8(numbers["threads"])
	return head, Cost{head.Time, head.Memory, head.Threads}.check()
}

func parseSecrets(plain []byte) (*Identity, error) {
	f, err := parseFields(plain)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	var s secrets
	for name, to := range map[string]*[keySize]byte{"encryption_key": &s.classic, "hybrid_key": &s.hybrid, "signing_key": &s.signing, "path_secret": &s.path} {
		b, err := f.bytes(name, keySize)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrIdentity, err)
		}
		*to = [keySize]byte(b)
	}
	return newIdentity(s)
}
