import {execFileSync} from 'node:child_process'
import {cpSync, globSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'

const root = join(import.meta.dirname, '..')
const dist = join(root, 'dist')

rmSync(dist, {recursive: true, force: true})
execFileSync('tsc', ['-p', 'tsconfig.build.json'], {cwd: root, stdio: 'inherit'})
for (const file of globSync('src/**/*.{css,js}', {cwd: root})) cpSync(join(root, file), join(dist, file))
// The compiler omits from declarations the import attributes that Node's own resolution requires.
for (const file of globSync('**/*.d.ts', {cwd: dist})) {
  const path = join(dist, file)
  const text = readFileSync(path, 'utf8')
  writeFileSync(path, text.replaceAll(/(?<= from '[^']+\.json')(?=;)/g, ` with {type: 'json'}`))
}
for (const folder of ['sql', 'pages', 'jobs', 'templates', 'evidence'])
  cpSync(join(root, folder), join(dist, folder), {recursive: true})
