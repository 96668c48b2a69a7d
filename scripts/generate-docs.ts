import {writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {compileAnew, formatPlan, keyOfPlan, SHIPPED_PLAN} from '../src/build/compile.ts'
import {readSources} from '../src/build/sources.ts'
import {descriptionShape} from '../src/contract/description.ts'
import {parseConfig} from '../src/core/config.ts'
import {renderConfigurationPage, renderEnvExample} from './config-docs.ts'

const root = join(import.meta.dirname, '..')
writeFileSync(join(root, 'docs/configuration.md'), renderConfigurationPage())
writeFileSync(join(root, '.env.example'), renderEnvExample())
const schema = z.toJSONSchema(descriptionShape, {io: 'input'})
writeFileSync(join(root, 'docs/source.schema.json'), `${JSON.stringify(schema, null, 2)}\n`)

const sources = readSources(parseConfig({}, {readFile: () => ''}), [])
const plan = await compileAnew(sources)
writeFileSync(SHIPPED_PLAN, `${formatPlan(keyOfPlan(sources), plan)}\n`)
