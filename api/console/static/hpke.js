// Opens a key that was wrapped by HPKE (RFC 9180) in base mode with X25519, HKDF-SHA256 and
// ChaCha20-Poly1305 (RFC 8439). WebCrypto has all but the last.

const { subtle } = globalThis.crypto
const text = (s) => new TextEncoder().encode(s)

export function join(...parts) {
  const out = new Uint8Array(parts.reduce((n, part) => n + part.length, 0))
  let at = 0
  for (const part of parts) {
    out.set(part, at)
    at += part.length
  }
  return out
}

// chacha returns a block of 64 bytes of the key stream.
function chacha(key, nonce, counter) {
  const state = new Uint32Array(16)
  state.set([0x61707865, 0x3320646e, 0x79622d32, 0x6b206574])
  const words = (bytes, to) => {
    const view = new DataView(bytes.buffer, bytes.byteOffset)
    for (let i = 0; i < bytes.length; i += 4) state[to + i / 4] = view.getUint32(i, true)
  }
  words(key, 4)
  state[12] = counter
  words(nonce, 13)
  const v = state.slice()
  const turn = (a, n) => { v[a] = v[a] << n | v[a] >>> 32 - n }
  const quarter = (a, b, c, d) => {
    v[a] += v[b]; v[d] ^= v[a]; turn(d, 16)
    v[c] += v[d]; v[b] ^= v[c]; turn(b, 12)
    v[a] += v[b]; v[d] ^= v[a]; turn(d, 8)
    v[c] += v[d]; v[b] ^= v[c]; turn(b, 7)
  }
  for (let i = 0; i < 10; i++) {
    for (let c = 0; c < 4; c++) quarter(c, c + 4, c + 8, c + 12)
    for (let c = 0; c < 4; c++) quarter(c, 4 + (c + 1) % 4, 8 + (c + 2) % 4, 12 + (c + 3) % 4)
  }
  const out = new DataView(new ArrayBuffer(64))
  for (let i = 0; i < 16; i++) out.setUint32(4 * i, v[i] + state[i], true)
  return new Uint8Array(out.buffer)
}

const number = (bytes) => bytes.reduceRight((n, byte) => n << 8n | BigInt(byte), 0n) // little-endian

// poly1305 returns the tag of a message, which has whole blocks of 16 bytes.
function poly1305(key, message) {
  const r = number(key.subarray(0, 16)) & 0x0ffffffc0ffffffc0ffffffc0fffffffn
  let sum = 0n
  for (let at = 0; at < message.length; at += 16) {
    sum = (sum + number(message.subarray(at, at + 16)) + (1n << 128n)) * r % ((1n << 130n) - 5n)
  }
  sum += number(key.subarray(16, 32))
  return Uint8Array.from({ length: 16 }, (_, i) => Number(sum >> BigInt(8 * i) & 255n))
}

// openChaCha decrypts a ciphertext of at most 64 bytes with its tag, or throws.
export function openChaCha(key, nonce, sealed, aad) {
  const ciphertext = sealed.subarray(0, sealed.length - 16)
  const zeros = (n) => new Uint8Array((16 - n % 16) % 16)
  const lengths = new DataView(new ArrayBuffer(16))
  lengths.setUint32(0, aad.length, true)
  lengths.setUint32(8, ciphertext.length, true)
  const message = join(aad, zeros(aad.length), ciphertext, zeros(ciphertext.length), new Uint8Array(lengths.buffer))
  const tag = poly1305(chacha(key, nonce, 0), message)
  const wrong = tag.reduce((all, byte, i) => all | byte ^ sealed[ciphertext.length + i], 0)
  if (sealed.length < 16 || ciphertext.length > 64 || wrong !== 0) throw new Error('the wrapped key does not open')
  const stream = chacha(key, nonce, 1)
  return ciphertext.map((byte, i) => byte ^ stream[i])
}

// hkdf expands what it extracts from salt and input, with labels of RFC 9180, section 4.
async function hkdf(suite, salt, extract, input, expand, info, length) {
  const version = text('HPKE-v1')
  const key = await subtle.importKey('raw', join(version, suite, text(extract), input), 'HKDF', false, ['deriveBits'])
  const labeled = join(Uint8Array.of(0, length), version, suite, text(expand), info)
  return new Uint8Array(await subtle.deriveBits({ name: 'HKDF', hash: 'SHA-256', salt, info: labeled }, key, 8 * length))
}

// extracted is LabeledExtract without a salt.
async function extracted(suite, label, input) {
  const key = await subtle.importKey('raw', new Uint8Array(32), { name: 'HMAC', hash: 'SHA-256' }, false, ['sign'])
  return new Uint8Array(await subtle.sign('HMAC', key, join(text('HPKE-v1'), suite, text(label), input)))
}

// importX25519 returns an X25519 private key and its public key. It throws a NotSupportedError in a
// browser that lacks X25519.
export async function importX25519(secret) {
  const pkcs8 = join(Uint8Array.of(0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x6e, 4, 0x22, 4, 0x20), secret)
  const key = await subtle.importKey('pkcs8', pkcs8, 'X25519', true, ['deriveBits'])
  const { x } = await subtle.exportKey('jwk', key)
  const binary = atob(x.replaceAll('-', '+').replaceAll('_', '/'))
  return { key, public: Uint8Array.from(binary, (c) => c.charCodeAt(0)) }
}

// openKey returns the key that was wrapped for a recipient of importX25519, or throws.
export async function openKey(recipient, encapsulated, sealed, info, aad) {
  const sender = await subtle.importKey('raw', encapsulated, 'X25519', false, [])
  const dh = new Uint8Array(await subtle.deriveBits({ name: 'X25519', public: sender }, recipient.key, 256))
  const kem = join(text('KEM'), Uint8Array.of(0, 0x20))
  const shared = await hkdf(kem, new Uint8Array(0), 'eae_prk', dh, 'shared_secret', join(encapsulated, recipient.public), 32)
  const suite = join(text('HPKE'), Uint8Array.of(0, 0x20, 0, 1, 0, 3))
  const none = new Uint8Array(0)
  const context = join(Uint8Array.of(0), await extracted(suite, 'psk_id_hash', none), await extracted(suite, 'info_hash', info))
  const key = await hkdf(suite, shared, 'secret', none, 'key', context, 32)
  const nonce = await hkdf(suite, shared, 'secret', none, 'base_nonce', context, 12)
  return openChaCha(key, nonce, sealed, aad)
}
