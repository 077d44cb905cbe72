// BLAKE3 (https://github.com/BLAKE3-team/BLAKE3-specs), with 32 bytes of output.

const IV = Int32Array.of(0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19)
const chunkStart = 1, chunkEnd = 2, parent = 4, root = 8, deriveContext = 32, deriveMaterial = 64 // flags
const block = 64, chunk = 1024 // bytes

// offsets are where the words of a block are, in the order in which the seven rounds take them.
const offsets = (() => {
  const permutation = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8]
  const rounds = [[...permutation.keys()]]
  while (rounds.length < 7) rounds.push(permutation.map((i) => rounds.at(-1)[i]))
  return Uint8Array.from(rounds.flat(), (i) => 4 * i)
})()

// compress mixes a block into the chaining value cv, and writes the result to out. The words are
// local variables and the eight steps of a round are written out, because a loop over an array takes
// several times as long.
function compress(out, cv, view, at, count, length, flags) {
  let a0 = cv[0], a1 = cv[1], a2 = cv[2], a3 = cv[3], b0 = cv[4], b1 = cv[5], b2 = cv[6], b3 = cv[7]
  let c0 = IV[0], c1 = IV[1], c2 = IV[2], c3 = IV[3], d0 = count | 0, d1 = count / 0x100000000 | 0, d2 = length, d3 = flags
  for (let i = 0; i < 112; i += 16) {
    a0 = a0 + b0 + view.getInt32(at + offsets[i], true) | 0; d0 ^= a0; d0 = d0 << 16 | d0 >>> 16; c0 = c0 + d0 | 0; b0 ^= c0; b0 = b0 << 20 | b0 >>> 12
    a0 = a0 + b0 + view.getInt32(at + offsets[i + 1], true) | 0; d0 ^= a0; d0 = d0 << 24 | d0 >>> 8; c0 = c0 + d0 | 0; b0 ^= c0; b0 = b0 << 25 | b0 >>> 7
    a1 = a1 + b1 + view.getInt32(at + offsets[i + 2], true) | 0; d1 ^= a1; d1 = d1 << 16 | d1 >>> 16; c1 = c1 + d1 | 0; b1 ^= c1; b1 = b1 << 20 | b1 >>> 12
    a1 = a1 + b1 + view.getInt32(at + offsets[i + 3], true) | 0; d1 ^= a1; d1 = d1 << 24 | d1 >>> 8; c1 = c1 + d1 | 0; b1 ^= c1; b1 = b1 << 25 | b1 >>> 7
    a2 = a2 + b2 + view.getInt32(at + offsets[i + 4], true) | 0; d2 ^= a2; d2 = d2 << 16 | d2 >>> 16; c2 = c2 + d2 | 0; b2 ^= c2; b2 = b2 << 20 | b2 >>> 12
    a2 = a2 + b2 + view.getInt32(at + offsets[i + 5], true) | 0; d2 ^= a2; d2 = d2 << 24 | d2 >>> 8; c2 = c2 + d2 | 0; b2 ^= c2; b2 = b2 << 25 | b2 >>> 7
    a3 = a3 + b3 + view.getInt32(at + offsets[i + 6], true) | 0; d3 ^= a3; d3 = d3 << 16 | d3 >>> 16; c3 = c3 + d3 | 0; b3 ^= c3; b3 = b3 << 20 | b3 >>> 12
    a3 = a3 + b3 + view.getInt32(at + offsets[i + 7], true) | 0; d3 ^= a3; d3 = d3 << 24 | d3 >>> 8; c3 = c3 + d3 | 0; b3 ^= c3; b3 = b3 << 25 | b3 >>> 7
    a0 = a0 + b1 + view.getInt32(at + offsets[i + 8], true) | 0; d3 ^= a0; d3 = d3 << 16 | d3 >>> 16; c2 = c2 + d3 | 0; b1 ^= c2; b1 = b1 << 20 | b1 >>> 12
    a0 = a0 + b1 + view.getInt32(at + offsets[i + 9], true) | 0; d3 ^= a0; d3 = d3 << 24 | d3 >>> 8; c2 = c2 + d3 | 0; b1 ^= c2; b1 = b1 << 25 | b1 >>> 7
    a1 = a1 + b2 + view.getInt32(at + offsets[i + 10], true) | 0; d0 ^= a1; d0 = d0 << 16 | d0 >>> 16; c3 = c3 + d0 | 0; b2 ^= c3; b2 = b2 << 20 | b2 >>> 12
    a1 = a1 + b2 + view.getInt32(at + offsets[i + 11], true) | 0; d0 ^= a1; d0 = d0 << 24 | d0 >>> 8; c3 = c3 + d0 | 0; b2 ^= c3; b2 = b2 << 25 | b2 >>> 7
    a2 = a2 + b3 + view.getInt32(at + offsets[i + 12], true) | 0; d1 ^= a2; d1 = d1 << 16 | d1 >>> 16; c0 = c0 + d1 | 0; b3 ^= c0; b3 = b3 << 20 | b3 >>> 12
    a2 = a2 + b3 + view.getInt32(at + offsets[i + 13], true) | 0; d1 ^= a2; d1 = d1 << 24 | d1 >>> 8; c0 = c0 + d1 | 0; b3 ^= c0; b3 = b3 << 25 | b3 >>> 7
    a3 = a3 + b0 + view.getInt32(at + offsets[i + 14], true) | 0; d2 ^= a3; d2 = d2 << 16 | d2 >>> 16; c1 = c1 + d2 | 0; b0 ^= c1; b0 = b0 << 20 | b0 >>> 12
    a3 = a3 + b0 + view.getInt32(at + offsets[i + 15], true) | 0; d2 ^= a3; d2 = d2 << 24 | d2 >>> 8; c1 = c1 + d2 | 0; b0 ^= c1; b0 = b0 << 25 | b0 >>> 7
  }
  out[0] = a0 ^ c0; out[1] = a1 ^ c1; out[2] = a2 ^ c2; out[3] = a3 ^ c3; out[4] = b0 ^ d0; out[5] = b1 ^ d1; out[6] = b2 ^ d2; out[7] = b3 ^ d3
}

// Blake3 hashes what update gets.
export class Blake3 {
  #key
  #flags
  #count = 0 // chunks that are finished
  #stack = [] // chaining values of the finished subtrees, the largest first
  #buffer = new Uint8Array(chunk) // the chunk that is not finished, since it may be the last
  #length = 0 // bytes of it
  #pair = new DataView(new ArrayBuffer(block)) // two chaining values

  constructor(key = IV, flags = 0) {
    this.#key = key
    this.#flags = flags
  }

  update(bytes) {
    for (let at = 0; at < bytes.length;) {
      if (this.#length === chunk) {
        this.#push(this.#chunk(this.#buffer, 0, chunk, 0))
        this.#length = 0
      }
      if (this.#length === 0) { // whole chunks are hashed where they are
        for (; bytes.length - at > chunk; at += chunk) this.#push(this.#chunk(bytes, at, chunk, 0))
      }
      const part = bytes.subarray(at, at + chunk - this.#length)
      this.#buffer.set(part, this.#length)
      this.#length += part.length
      at += part.length
    }
    return this
  }

  digest() {
    let value = this.#chunk(this.#buffer, 0, this.#length, this.#stack.length ? 0 : root)
    for (let i = this.#stack.length - 1; i >= 0; i--) value = this.#join(this.#stack[i], value, i ? 0 : root)
    const out = new DataView(new ArrayBuffer(32))
    for (const [i, word] of value.entries()) out.setInt32(4 * i, word, true)
    return new Uint8Array(out.buffer)
  }

  // #chunk returns the chaining value of the next chunk: length bytes at at.
  #chunk(bytes, at, length, last) {
    const value = Int32Array.from(this.#key)
    if (length % block !== 0 || length === 0) { // the last block ends with zeros
      const padded = new Uint8Array(Math.max(block, Math.ceil(length / block) * block))
      padded.set(bytes.subarray(at, at + length))
      bytes = padded
      at = 0
    }
    const view = new DataView(bytes.buffer, bytes.byteOffset + at)
    const blocks = Math.max(1, Math.ceil(length / block))
    for (let i = 0; i < blocks; i++) {
      const flags = this.#flags | (i === 0 ? chunkStart : 0) | (i === blocks - 1 ? chunkEnd | last : 0)
      compress(value, value, view, i * block, this.#count, Math.min(block, length - i * block), flags)
    }
    return value
  }

  // #push takes the chaining value of a chunk, and joins the subtrees that are complete with it.
  #push(value) {
    this.#count++
    for (let n = this.#count; n % 2 === 0; n /= 2) value = this.#join(this.#stack.pop(), value, 0)
    this.#stack.push(value)
  }

  #join(left, right, last) {
    for (let i = 0; i < 8; i++) {
      this.#pair.setInt32(4 * i, left[i], true)
      this.#pair.setInt32(32 + 4 * i, right[i], true)
    }
    const value = new Int32Array(8)
    compress(value, this.#key, this.#pair, 0, 0, block, this.#flags | parent | last)
    return value
  }
}

// hash returns the BLAKE3 of parts, one behind the other.
export function hash(...parts) {
  const h = new Blake3()
  for (const part of parts) h.update(part)
  return h.digest()
}

// derive returns the key that derive_key makes from parts, one behind the other.
export function derive(context, ...parts) {
  const key = new DataView(new Blake3(IV, deriveContext).update(new TextEncoder().encode(context)).digest().buffer)
  const h = new Blake3(Int32Array.from({ length: 8 }, (_, i) => key.getInt32(4 * i, true)), deriveMaterial)
  for (const part of parts) h.update(part)
  return h.digest()
}
