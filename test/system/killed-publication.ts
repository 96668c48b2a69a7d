import {createClient} from '@clickhouse/client'
import {openClickhouse} from '../../src/export/clickhouse.ts'
import {publishTo} from '../../src/export/publish.ts'
import {dataFolderAt} from '../../src/store/data-folder.ts'
import {requireRelease} from '../../src/store/release.ts'
import {createWorldAt} from '../support/data.ts'
import {intercept} from '../support/file-operations.ts'

// Publishes a release and kills itself at the nth request: `before` sending it, or after its answer.
const [dataDir = '', releaseId, request = '{}', nth, when] = process.argv.slice(2)
let asked = 0
const {prototype} = createClient({}).constructor as {prototype: object}
for (const method of ['command', 'query', 'exec'])
  intercept(prototype, method, async (ask) => {
    asked += 1
    if (asked === Number(nth) && when === 'before') process.kill(process.pid, 'SIGKILL')
    const answer = await ask()
    if (asked === Number(nth)) process.kill(process.pid, 'SIGKILL')
    return answer
  })
const world = createWorldAt('2026-02-02T12:00:00Z')
const asLender = JSON.parse(request)
await using target = await openClickhouse(asLender, world)
const release = requireRelease(dataFolderAt(dataDir), releaseId)
await publishTo(target, release, {command: 'loantape publish clickhouse', folderId: asLender.source}, world)
process.stdout.write(String(asked))
