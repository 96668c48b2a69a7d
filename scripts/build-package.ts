import {execFileSync} from 'node:child_process'
import {cpSync, globSync, rmSync} from 'node:fs'
import {join} from 'node:path'

const root = join(import.meta.dirname, '..')
const dist = join(root, 'dist')

rmSync(dist, {recursive: true, force: true})
execFileSync('tsc', ['-p', 'tsconfig.build.json'], {cwd: root, stdio: 'inherit'})
for (const file of globSync('src/**/*.{css,js}', {cwd: root})) cpSync(join(root, file), join(dist, file))
for (const folder of ['sql', 'pages', 'jobs', 'templates', 'evidence'])
  cpSync(join(root, folder), join(dist, folder), {recursive: true})
