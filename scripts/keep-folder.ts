import {mkdirSync} from 'node:fs'
import {join} from 'node:path'
import {VERSION} from '../src/core/process.ts'
import {createEarlierLab, FOLDERS, playEarlier} from '../test/support/earlier-folder.ts'

/** Saves a data folder made by this version, for the test that every later version can continue it. */
await using lab = await createEarlierLab()
process.env.HTTP_PROXY = lab.proxy
process.env.NO_PROXY = ''
await playEarlier(lab)
mkdirSync(FOLDERS, {recursive: true})
lab.save(join(FOLDERS, `${VERSION}.tgz`))
