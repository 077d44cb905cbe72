// Drives @aws-sdk/client-s3 and lib-storage through one bucket, with their default
// settings: node clients.mjs ENDPOINT ACCESS_KEY SECRET BUCKET.
import { createHash, randomBytes } from 'node:crypto'
import { Readable } from 'node:stream'
import assert from 'node:assert/strict'
import * as s3 from '@aws-sdk/client-s3'
import { Upload } from '@aws-sdk/lib-storage'

const [endpoint, accessKeyId, secretAccessKey, Bucket] = process.argv.slice(2)
const client = new s3.S3Client({ endpoint, region: 'us-east-1', forcePathStyle: true, credentials: { accessKeyId, secretAccessKey } })
const send = (command) => client.send(command)
const sha = (bytes) => createHash('sha256').update(bytes).digest('hex')
const bodyOf = async (Key, more = {}) => {
  const got = await send(new s3.GetObjectCommand({ Bucket, Key, ...more }))
  return Buffer.from(await got.Body.transformToByteArray())
}

await send(new s3.CreateBucketCommand({ Bucket }))
assert((await send(new s3.ListBucketsCommand({}))).Buckets.some((b) => b.Name === Bucket))

const small = randomBytes(70_000)
await send(new s3.PutObjectCommand({ Bucket, Key: 'docs/small file+ü.bin', Body: small, ContentType: 'x/y', Metadata: { colour: 'blue' } }))
assert.equal(sha(await bodyOf('docs/small file+ü.bin')), sha(small))
const head = await send(new s3.HeadObjectCommand({ Bucket, Key: 'docs/small file+ü.bin' }))
assert.equal(head.ContentLength, 70_000)
assert.equal(head.ContentType, 'x/y')
assert.equal(head.Metadata.colour, 'blue')
assert.equal((await bodyOf('docs/small file+ü.bin', { Range: 'bytes=10-19' })).length, 10)

// A stream without a known length, 200 MiB in parts.
const piece = randomBytes(1 << 20)
const whole = createHash('sha256')
async function * pieces () {
  for (let i = 0; i < 200; i++) {
    piece.writeUInt32BE(i, 0)
    whole.update(piece)
    yield Buffer.from(piece)
  }
}
await new Upload({ client, params: { Bucket, Key: 'big', Body: Readable.from(pieces()) } }).done()
const back = createHash('sha256')
for await (const chunk of (await send(new s3.GetObjectCommand({ Bucket, Key: 'big' }))).Body) back.update(chunk)
assert.equal(back.digest('hex'), whole.digest('hex'))

await send(new s3.CopyObjectCommand({ Bucket, Key: 'copy', CopySource: `${Bucket}/big` }))
assert.equal((await send(new s3.HeadObjectCommand({ Bucket, Key: 'copy' }))).ContentLength, 200 << 20)

await send(new s3.PutObjectTaggingCommand({ Bucket, Key: 'big', Tagging: { TagSet: [{ Key: 'a', Value: '1' }] } }))
assert.deepEqual((await send(new s3.GetObjectTaggingCommand({ Bucket, Key: 'big' }))).TagSet, [{ Key: 'a', Value: '1' }])
await send(new s3.DeleteObjectTaggingCommand({ Bucket, Key: 'big' }))

const list = await send(new s3.ListObjectsV2Command({ Bucket, Delimiter: '/' }))
assert.deepEqual(list.Contents.map((o) => o.Key), ['big', 'copy'])
assert.deepEqual(list.CommonPrefixes.map((p) => p.Prefix), ['docs/'])
await assert.rejects(send(new s3.GetObjectCommand({ Bucket, Key: 'absent' })), { name: 'NoSuchKey' })
await assert.rejects(send(new s3.DeleteBucketCommand({ Bucket })), { name: 'BucketNotEmpty' })
const gone = await send(new s3.DeleteObjectsCommand({ Bucket, Delete: { Objects: ['big', 'copy', 'docs/small file+ü.bin'].map((Key) => ({ Key })) } }))
assert.equal(gone.Deleted.length, 3)
await send(new s3.DeleteBucketCommand({ Bucket }))
console.log('all passed')
