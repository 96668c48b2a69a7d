#!/usr/bin/env -S node --max-semi-space-size=8
// An old Node has to get as far as saying that it is too old: no syntax and no import here that it does not know.
// The first Node 24 with long-term support. SQLite of 24.0 to 24.6 does not know a parameter such as ?1 twice.
const LEAST = '24.11.0'
const version = process.versions.node

if (version.localeCompare(LEAST, 'en', {numeric: true}) >= 0) start()
else refuse()

async function start() {
  const [fs, module, os, path] = await Promise.all([
    import('node:fs'),
    import('node:module'),
    import('node:os'),
    import('node:path'),
  ])
  keepCompiled(fs, module, os, path)
  // A checkout runs its sources; a package has none, for Node strips no types below node_modules.
  const source = new URL('../src/main.ts', import.meta.url)
  await import(fs.existsSync(source) ? source.href : new URL('../dist/src/main.js', import.meta.url).href)
}

/** Halves the time to start. Others could put programs of theirs into a folder that is not this user's alone. */
function keepCompiled({mkdirSync, statSync}, {enableCompileCache}, {homedir}, {join}) {
  try {
    const dir = join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'loantape')
    mkdirSync(dir, {recursive: true, mode: 0o700})
    const {uid, mode} = statSync(dir)
    if (process.getuid === undefined || (uid === process.getuid() && (mode & 0o077) === 0))
      enableCompileCache(dir)
  } catch {
    // No folder, or none to write to.
  }
}

function refuse() {
  const message =
    `Node ${version}: expected ${LEAST} or later. Nothing was started. ` +
    'Install it from nodejs.org; a checkout brings its own: `npm ci --include=dev`, then `npx loantape`.'
  if (process.argv.includes('--json')) {
    process.stdout.write(`${JSON.stringify({error: {code: 'NODE_VERSION', exit_code: 2, message}})}\n`)
  }
  process.stderr.write(`loantape: ${message} [NODE_VERSION]\n`)
  process.exitCode = 2
}
