// Decides requests with iam-simulate. Reads a JSON list of checks per line and writes a list of answers per line, in
// order, until the input is closed.
import { createInterface } from 'node:readline'
import { getDenialReasons, runSimulation, runUnsafeSimulation } from '@cloud-copilot/iam-simulate'

function simulation(check) {
  return {
    request: {
      principal: check.principal,
      action: check.action,
      resource: { resource: check.resource, accountId: check.account },
      contextVariables: check.context
    },
    identityPolicies: check.identity,
    sessionPolicy: check.session ?? undefined,
    resourcePolicy: check.policy ?? undefined,
    permissionBoundaryPolicies: check.boundary ?? undefined,
    serviceControlPolicies: [],
    resourceControlPolicies: []
  }
}

// A resource of AWS (a public parameter, a session document) has no account in its ARN, but the reference's patterns
// require one. The first attempt has validated everything else in the check.
function decideOnPublic(check) {
  if (check.session) return { error: 'it does not support session policies for resources without an account in the ARN' }
  return { result: runUnsafeSimulation(simulation(check), {}), reasons: [] }
}

async function decide(check) {
  const outcome = await runSimulation(simulation(check), { simulationMode: 'Strict' })
  if (outcome.resultType === 'error') {
    const isPublic = outcome.errors.message === 'no.resource.types' && check.resource.split(':')[4] === ''
    return isPublic ? decideOnPublic(check) : { error: JSON.stringify(outcome.errors) }
  }
  if (outcome.resultType === 'wildcard') return { error: `the resource ${check.resource} has a wildcard` }
  const analysis = outcome.result.analysis
  return {
    result: outcome.overallResult,
    reasons: outcome.overallResult === 'Allowed' ? [] : getDenialReasons(analysis)
  }
}

const input = createInterface({ input: process.stdin, crlfDelay: Infinity })
for await (const line of input) {
  const answers = []
  for (const check of JSON.parse(line)) {
    try {
      answers.push(await decide(check))
    } catch (error) {
      answers.push({ error: String(error) })
    }
  }
  process.stdout.write(JSON.stringify(answers) + '\n')
}
