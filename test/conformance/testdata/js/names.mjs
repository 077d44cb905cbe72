// Tells for each path whether the page of share links takes it as it is.
import { pathToFileURL } from 'node:url'

const { module, paths } = JSON.parse(Buffer.concat(await process.stdin.toArray()).toString())
const { cleanPath } = await import(pathToFileURL(module))
const taken = paths.map((path) => {
  try {
    return path !== '/' && cleanPath(path) === path
  } catch {
    return false
  }
})
process.stdout.write(JSON.stringify(taken))
