// Reads and writes the format of docs/encryption.md, made from that document alone, with
// WebCrypto and packages for what it lacks: BLAKE3, argon2id, HPKE.
//
// Standard input is a JSON list of requests, standard output the list of answers. A request is
// {"op": name, ...}; the answer is {"value": …} or {"error": text}. Bytes are base64.
import { CipherSuite, DhkemX25519HkdfSha256, HkdfSha256 } from '@hpke/core'
import { Chacha20Poly1305 } from '@hpke/chacha20poly1305'
import { XWing } from '@hpke/hybridkem-x-wing'
import { argon2id } from '@noble/hashes/argon2.js'
import { blake3 } from '@noble/hashes/blake3.js'
import { sha256 } from '@noble/hashes/sha2.js'

const { subtle } = crypto
const chunkSize = 262144
const overhead = 28
const text = s => new TextEncoder().encode(s)
const join = (...parts) => new Uint8Array(Buffer.concat(parts.map(p => typeof p === 'string' ? text(p) : p)))
const hex = b => Buffer.from(b).toString('hex')
const b64 = b => Buffer.from(b).toString('base64')
const b64url = b => Buffer.from(b).toString('base64url')
const random = n => crypto.getRandomValues(new Uint8Array(n))
const derive = (context, ...parts) => blake3(join(...parts), { context: text(context) })
const seconds = () => Math.floor(Date.now() / 1000)

// strict decodes base64 that has one form only.
function strict (s, kind = 'base64', size = 0) {
  if (typeof s !== 'string') throw new Error('not ' + kind)
  const b = Buffer.from(s, kind)
  if (b.toString(kind) !== s || (size > 0 && b.length !== size)) throw new Error('not ' + kind)
  return new Uint8Array(b)
}

const gcmKey = key => subtle.importKey('raw', key, 'AES-GCM', false, ['encrypt', 'decrypt'])

async function gcm (key, nonce, plaintext, aad = '') {
  return new Uint8Array(await subtle.encrypt({ name: 'AES-GCM', iv: nonce, additionalData: text(aad) }, await gcmKey(key), plaintext))
}

async function ungcm (key, nonce, ciphertext, aad = '') {
  try {
    return new Uint8Array(await subtle.decrypt({ name: 'AES-GCM', iv: nonce, additionalData: text(aad) }, await gcmKey(key), ciphertext))
  } catch {
    throw new Error('does not decrypt')
  }
}

// HPKE

const suite = hybrid => new CipherSuite({ kem: hybrid ? new XWing() : new DhkemX25519HkdfSha256(), kdf: new HkdfSha256(), aead: new Chacha20Poly1305() })
const info = text('fula-storage-v2')

async function wrap (publicKey, key, aad, hybrid = false) {
  const s = suite(hybrid)
  const sender = await s.createSenderContext({ recipientPublicKey: await s.kem.deserializePublicKey(publicKey), info })
  const ciphertext = await sender.seal(key, text(aad))
  return { encapsulated_key: b64(new Uint8Array(sender.enc)), ciphertext: b64(new Uint8Array(ciphertext)), nonce: b64(new Uint8Array(12)) }
}

async function unwrap (privateKey, wrapped, aad, hybrid = false) {
  const s = suite(hybrid)
  const nested = typeof wrapped.encapsulated_key === 'object'
  const enc = strict(nested ? wrapped.encapsulated_key.ephemeral_public : wrapped.encapsulated_key, 'base64', hybrid ? 1120 : 32)
  const recipient = await s.createRecipientContext({ recipientKey: await s.kem.deserializePrivateKey(privateKey), enc, info })
  try {
    return new Uint8Array(await recipient.open(strict(wrapped.ciphertext, 'base64', 48), text(aad)))
  } catch {
    throw new Error('key is for somebody else')
  }
}

async function publicOf (privateKey) {
  const pkcs8 = join(Buffer.from('302e020100300506032b656e04220420', 'hex'), privateKey)
  const jwk = await subtle.exportKey('jwk', await subtle.importKey('pkcs8', pkcs8, 'X25519', true, ['deriveBits']))
  return strict(jwk.x, 'base64url', 32)
}

// Identity

async function signingKeys (seed) {
  const pkcs8 = join(Buffer.from('302e020100300506032b657004220420', 'hex'), seed)
  const key = await subtle.importKey('pkcs8', pkcs8, 'Ed25519', true, ['sign'])
  return { key, public: strict((await subtle.exportKey('jwk', key)).x, 'base64url', 32) }
}

async function shareIdentity (id) {
  const keys = join(await publicOf(id.encryption), (await signingKeys(id.signing)).public)
  return 'hfid1-' + b64url(join(keys, sha256(keys).slice(0, 4)))
}

function parseShareIdentity (s) {
  const b = strict(s.replace(/^hfid1-/, ''), 'base64url', 68)
  if (!s.startsWith('hfid1-') || hex(sha256(b.slice(0, 64)).slice(0, 4)) !== hex(b.slice(64))) throw new Error('not a share identity')
  return { encryption: b.slice(0, 32), signing: b.slice(32, 64) }
}

const fileMembers = ['version', 'identity', 'kdf', 'time', 'memory_kib', 'threads', 'salt', 'cipher']

function fileKey (f, passphrase) {
  return argon2id(text(passphrase), strict(f.salt, 'base64', 16), { t: f.time, m: f.memory_kib, p: f.threads, dkLen: 32, version: 0x13 })
}

async function openIdentity (file, passphrase) {
  const f = JSON.parse(file)
  if (f.version !== 1 || f.kdf !== 'argon2id' || f.cipher !== 'AES-256-GCM') throw new Error('unknown identity file')
  if (f.time < 1 || f.time > 64 || f.memory_kib < 7168 || f.memory_kib > 1048576 || f.threads < 1 || f.threads > 16) throw new Error('cost is out of bounds')
  const aad = JSON.stringify(Object.fromEntries(fileMembers.map(m => [m, f[m]])))
  const s = JSON.parse(Buffer.from(await ungcm(fileKey(f, passphrase), strict(f.nonce), strict(f.ciphertext), aad)).toString())
  const id = { encryption: strict(s.encryption_key, 'base64', 32), hybrid: strict(s.hybrid_key, 'base64', 32), signing: strict(s.signing_key, 'base64', 32), path: strict(s.path_secret, 'base64', 32) }
  if (await shareIdentity(id) !== f.identity) throw new Error('identity file has other keys')
  return id
}

async function sealIdentity (id, passphrase) {
  const f = { version: 1, identity: await shareIdentity(id), kdf: 'argon2id', time: 1, memory_kib: 7168, threads: 1, salt: b64(random(16)), cipher: 'AES-256-GCM' }
  const plain = JSON.stringify({ encryption_key: b64(id.encryption), hybrid_key: b64(id.hybrid), signing_key: b64(id.signing), path_secret: b64(id.path) })
  const nonce = random(12)
  return JSON.stringify({ ...f, nonce: b64(nonce), ciphertext: b64(await gcm(fileKey(f, passphrase), nonce, text(plain), JSON.stringify(f))) })
}

// Folder and storage keys

function folderKey (root, path) {
  return path.split('/').filter(s => s !== '').reduce((key, s) => derive('holdfast folder-child v1', key, s), root)
}

const rootKey = (id, bucket) => derive('holdfast folder-root v1', id.encryption, bucket)
const parent = path => path.slice(0, path.lastIndexOf('/')) || '/'

function storageKey (secret, strategy, path) {
  const key = derive('fula-path-key-v1', secret, path)
  const cut = path.lastIndexOf('/') + 1
  switch (strategy) {
    case 'DeterministicHash': return 'e/' + hex(blake3(join(key, path)).slice(0, 16))
    case 'RandomUuid': return 'e/' + crypto.randomUUID()
    case 'PreserveStructure': return path.slice(0, cut) + 'e_' + hex(blake3(join(key, path.slice(cut))).slice(0, 12))
  }
  throw new Error('unknown strategy')
}

// Objects

async function dataKey (h, storage, keys) {
  if (keys.data) return strict(keys.data)
  if (keys.folder) {
    return ungcm(strict(keys.folder), strict(h.folder_key.nonce), strict(h.folder_key.ciphertext), 'holdfast:v1:folder-wrap:' + storage)
  }
  const hybrid = h.version > 100
  return unwrap(hybrid ? keys.id.hybrid : keys.id.encryption, h.wrapped_key, 'fula:v2:dek-wrap', hybrid)
}

async function openObject (header, storage, path, keys) {
  const h = JSON.parse(header)
  if (![2, 4, 102, 104].includes(h.version)) throw new Error('version ' + h.version + ' is not supported')
  if (h.algorithm !== 'AES-256-GCM') throw new Error('algorithm is not supported')
  const key = await dataKey(h, storage, keys)
  if (h.metadata_privacy !== true) throw new Error('no private metadata')
  const p = JSON.parse(h.private_metadata)
  if (p.version !== 1) throw new Error('private metadata is not supported')
  const m = JSON.parse(Buffer.from(await ungcm(key, strict(p.nonce, 'base64', 12), strict(p.ciphertext))).toString())
  if (path && m.original_key !== path) throw new Error('another object')
  return { h, key, m }
}

async function openChunk (o, storage, i, record) {
  return ungcm(o.key, record.slice(0, 12), record.slice(12), `fula:v4:chunk:${storage}:${i}`)
}

async function decrypt ({ header, storage, path, ciphertext, range, ...keys }) {
  const o = await openObject(header, storage, path, keys)
  const { h, key, m } = o
  const data = strict(ciphertext)
  let plain
  if (m.chunk_size === undefined) {
    plain = await ungcm(key, strict(h.nonce, 'base64', 12), data, h.version % 100 === 4 ? 'fula:v4:content:' + storage : '')
  } else {
    const step = m.chunk_size + overhead
    const count = Math.ceil(m.actual_size / m.chunk_size)
    if (h.version % 100 !== 4 || m.chunk_count !== count || strict(h.nonce, 'base64', 12).some(b => b !== 0)) throw new Error('malformed')
    if (data.length !== m.actual_size + overhead * count) throw new Error('wrong length')
    if (range) {
      const [a, b] = range // first and last byte
      const parts = []
      const first = Math.floor(a / m.chunk_size)
      for (let i = first; i <= Math.floor(b / m.chunk_size); i++) {
        parts.push(await openChunk(o, storage, i, data.slice(i * step, (i + 1) * step)))
      }
      return { metadata: m, plaintext: b64(join(...parts).slice(a - first * m.chunk_size, b + 1 - first * m.chunk_size)) }
    }
    const parts = []
    for (let i = 0; i < count; i++) parts.push(await openChunk(o, storage, i, data.slice(i * step, (i + 1) * step)))
    plain = join(...parts)
  }
  if (plain.length !== m.actual_size || hex(blake3(plain)) !== m.content_hash) throw new Error('another content hash')
  return { metadata: m, plaintext: b64(plain) }
}

async function encrypt ({ id, hybridPublic, storage, path, plaintext, version, bucket }) {
  const plain = strict(plaintext)
  const key = random(32)
  const chunked = plain.length > chunkSize
  const hybrid = version > 100
  const m = {
    original_key: path, actual_size: plain.length, content_type: 'text/plain', created_at: seconds(), modified_at: seconds(),
    user_metadata: { from: 'JavaScript' }, content_hash: hex(blake3(plain)), of_another_writer: { kept: true }
  }
  const h = { version, algorithm: 'AES-256-GCM', nonce: b64(chunked ? new Uint8Array(12) : random(12)) }
  let content
  if (chunked) {
    m.chunk_size = chunkSize
    m.chunk_count = Math.ceil(plain.length / chunkSize)
    const parts = []
    for (let i = 0; i < m.chunk_count; i++) {
      const nonce = random(12)
      parts.push(nonce, await gcm(key, nonce, plain.slice(i * chunkSize, (i + 1) * chunkSize), `fula:v4:chunk:${storage}:${i}`))
    }
    content = join(...parts)
  } else {
    content = await gcm(key, strict(h.nonce), plain, version % 100 === 4 ? 'fula:v4:content:' + storage : '')
  }
  h.wrapped_key = await wrap(hybrid ? strict(hybridPublic) : await publicOf(id.encryption), key, 'fula:v2:dek-wrap', hybrid)
  h.metadata_privacy = true
  const nonce = random(12)
  h.private_metadata = JSON.stringify({ version: 1, ciphertext: b64(await gcm(key, nonce, text(JSON.stringify(m)))), nonce: b64(nonce) })
  if (bucket) {
    const n = random(12)
    h.folder_key = { ciphertext: b64(await gcm(folderKey(rootKey(id, bucket), parent(path)), n, key, 'holdfast:v1:folder-wrap:' + storage)), nonce: b64(n) }
  }
  return { header: JSON.stringify(h), ciphertext: b64(content) }
}

// Index

const indexBase = folder => 'x/' + hex(derive('holdfast index-name v1', folder).slice(0, 16)) + '/'
const indexAAD = (bucket, id, path) => `holdfast:index:v1:${bucket}:${id}:${path}`

async function listIndex ({ bucket, path, folder, objects }) {
  const key = strict(folder)
  const read = async (id) => {
    const raw = objects[indexBase(key) + id]
    if (raw === undefined) {
      if (id === 'root') return []
      throw new Error('part of the index is missing')
    }
    const data = strict(raw)
    if (Buffer.from(data.slice(0, 8)).toString() !== 'hfindex1') throw new Error('not an index')
    const node = JSON.parse(Buffer.from(await ungcm(derive('holdfast index-key v1', key), data.slice(8, 20), data.slice(20), indexAAD(bucket, id, path))).toString())
    if (node.version !== 1) throw new Error('unknown index')
    if (!node.split) return node.entries ?? []
    return (await Promise.all([...'0123456789abcdef'].map(d => read(node.split + '-' + d)))).flat()
  }
  return (await read('root')).sort((a, b) => Buffer.compare(Buffer.from(a.name), Buffer.from(b.name)))
}

async function writeIndex ({ bucket, path, folder, entries }) {
  const key = strict(folder)
  const objects = {}
  const write = async (id, node) => {
    const nonce = random(12)
    objects[indexBase(key) + id] = b64(join('hfindex1', nonce, await gcm(derive('holdfast index-key v1', key), nonce, text(JSON.stringify({ version: 1, ...node })), indexAAD(bucket, id, path))))
  }
  const tree = async (id, list, depth) => {
    if (list.length <= 1024) return write(id, { entries: list })
    const split = hex(random(16))
    for (const d of '0123456789abcdef') {
      await tree(split + '-' + d, list.filter(e => hex(blake3(text(e.name)))[depth] === d), depth + 1)
    }
    await write(id, { split })
  }
  await tree('root', [...entries].sort((a, b) => Buffer.compare(Buffer.from(a.name), Buffer.from(b.name))), 0)
  return objects
}

// Share tokens

// canonical is RFC 8785 for what JSON.parse gives: strings and numbers are written as by JavaScript.
function canonical (v) {
  if (Array.isArray(v)) return '[' + v.map(canonical).join(',') + ']'
  if (v !== null && typeof v === 'object') {
    return '{' + Object.keys(v).sort().map(k => JSON.stringify(k) + ':' + canonical(v[k])).join(',') + '}'
  }
  return JSON.stringify(v)
}

const without = (o, ...names) => Object.fromEntries(Object.entries(o).filter(([k]) => !names.includes(k)))

async function makeToken ({ id, to, bucket, path, permissions, expires, object, created }) {
  const keys = await signingKeys(id.signing)
  const t = {
    share_id: hex(random(16)), path_scope: path, created_at: created ?? seconds(), permissions,
    owner_public_key: b64(await publicOf(id.encryption)), signer_public_key: b64(keys.public), note: 'from JavaScript: é\u2028 1e21', number: 1e21
  }
  if (expires) t.expires_at = expires
  if (bucket) t.bucket = bucket
  if (!object) t.key_kind = 'folder'
  const key = object ? strict(object) : folderKey(rootKey(id, bucket), path)
  t.encrypted_dek = await wrap(parseShareIdentity(to).encryption, key, canonical(t))
  t.signature = b64(new Uint8Array(await subtle.sign('Ed25519', keys.key, text(canonical(t)))))
  return b64url(text(JSON.stringify(t)))
}

async function openToken ({ id, token, owner, now }) {
  const t = JSON.parse(token.startsWith('{') ? token : Buffer.from(strict(token, 'base64url')).toString())
  const signer = await subtle.importKey('raw', strict(t.signer_public_key, 'base64', 32), 'Ed25519', false, ['verify'])
  if (!await subtle.verify('Ed25519', signer, strict(t.signature, 'base64', 64), text(canonical(without(t, 'signature'))))) throw new Error('signature')
  if (owner) {
    const known = parseShareIdentity(owner)
    if (b64(known.encryption) !== t.owner_public_key || b64(known.signing) !== t.signer_public_key) throw new Error('owner')
  }
  if (t.created_at > now + 60) throw new Error('not yet')
  if (t.expires_at != null && now >= t.expires_at + 60) throw new Error('expired')
  const key = await unwrap(id.encryption, t.encrypted_dek, canonical(without(t, 'encrypted_dek', 'signature')))
  return { key: b64(key), kind: t.key_kind ?? '', scope: t.path_scope, bucket: t.bucket ?? '' }
}

async function openLink ({ link, now }) {
  const values = new URLSearchParams(new URL(link).hash.slice(1))
  if (values.get('v') !== '1') throw new Error('unknown link')
  const id = { encryption: strict(values.get('k'), 'base64url', 32) }
  return { ...await openToken({ id, token: values.get('t'), now }), access: values.get('a') ?? '' }
}

function below ({ key, scope, path }) {
  return b64(folderKey(strict(key), path.slice(scope.length)))
}

// Requests

const ops = {
  decrypt, encrypt, listIndex, writeIndex, makeToken, openToken, openLink, below,
  identity: ({ id }) => shareIdentity(id),
  seal: ({ id, passphrase }) => sealIdentity(id, passphrase),
  storage: ({ id, strategy, path }) => storageKey(id.path, strategy, path),
  folder: ({ id, bucket, path }) => b64(folderKey(rootKey(id, bucket), path))
}

const identities = new Map() // by file, because argon2id takes its time

const answers = []
for (const r of JSON.parse(Buffer.concat(await process.stdin.toArray()).toString())) {
  try {
    if (r.file) {
      if (!identities.has(r.file)) identities.set(r.file, await openIdentity(r.file, r.passphrase))
      r.id = identities.get(r.file)
    }
    answers.push({ value: await ops[r.op](r) })
  } catch (err) {
    answers.push({ error: String(err.message ?? err) })
  }
}
process.stdout.write(JSON.stringify(answers))
