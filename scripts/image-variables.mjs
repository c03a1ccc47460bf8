/** The variables of a Dockerfile's ENV, in the form NAME=VALUE or NAME="VALUE". Of NODE_OPTIONS,
 * only the options that this machine's Node knows: the image's is newer. */
export function imageVariables(text) {
  const pairs = [...text.matchAll(/(\w+)=(?:"([^"]*)"|(\S+))/g)];
  const variables = Object.fromEntries(
    pairs.map(([, name, quoted, plain]) => [name, quoted ?? plain]),
  );
  if (variables.NODE_OPTIONS === undefined) return variables;
  const isKnown = (option) => process.allowedNodeEnvironmentFlags.has(option.replace(/=.*/, ''));
  return {
    ...variables,
    NODE_OPTIONS: variables.NODE_OPTIONS.split(' ').filter(isKnown).join(' '),
  };
}
