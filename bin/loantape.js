#!/usr/bin/env -S node --max-semi-space-size=8
// An old Node has to get as far as saying that it is too old: no syntax and no import here that it does not know.
const LEAST = 24
const version = process.versions.node

if (Number(version.split('.')[0]) >= LEAST) start()
else refuse()

async function start() {
  const [{existsSync}, {enableCompileCache}] = await Promise.all([import('node:fs'), import('node:module')])
  // Halves the time to start; without a folder for temporary files nothing is cached.
  if (enableCompileCache) enableCompileCache()
  // A checkout runs its sources; a package has none, for Node strips no types below node_modules.
  const source = new URL('../src/main.ts', import.meta.url)
  await import(existsSync(source) ? source.href : new URL('../dist/src/main.js', import.meta.url).href)
}

function refuse() {
  const message =
    `Node ${version}: expected ${LEAST} or later. Nothing was started. ` +
    'Install it from nodejs.org; a checkout brings its own: `npm ci`, then `npx loantape`.'
  if (process.argv.includes('--json')) {
    process.stdout.write(`${JSON.stringify({error: {code: 'NODE_VERSION', exit_code: 2, message}})}\n`)
  }
  process.stderr.write(`loantape: ${message} [NODE_VERSION]\n`)
  process.exitCode = 2
}
