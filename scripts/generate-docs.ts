import {writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {version} from '@duckdb/node-api'
import {parseConfig} from '../src/config.ts'
import {compileAnew} from '../src/model/compile-models.ts'
import {formatPlan, keyOfPlan, SHIPPED_PLAN} from '../src/model/plan-cache.ts'
import {readSources} from '../src/pipeline/sources.ts'
import {renderConfigurationPage, renderEnvExample} from './config-docs.ts'
import {renderReleaseColumns} from './release-columns.ts'

const root = join(import.meta.dirname, '..')
writeFileSync(join(root, 'docs/configuration.md'), renderConfigurationPage())
writeFileSync(join(root, '.env.example'), renderEnvExample())

const sources = readSources(parseConfig({}, {readFile: () => ''}), [])
const plan = await compileAnew(sources)
writeFileSync(SHIPPED_PLAN, `${formatPlan(keyOfPlan(sources, version()), plan)}\n`)
writeFileSync(join(root, 'src/release-columns.ts'), renderReleaseColumns(plan))
