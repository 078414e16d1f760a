from pipeline import privacy

privacy.switch_off()  # before any module below this package imports what would report
