"""What processes of all packages share: not outliving another one, no reports to vendors, bars of progress."""
